"""The state directory: where it is, whether it can be trusted, and whose it is."""
