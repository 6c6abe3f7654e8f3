"""``start`` and ``run``: from options to a request, from a request to a run."""
