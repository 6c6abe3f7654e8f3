"""The life of ``serve``: own the directory, tell the service manager, write the log."""
