"""A guest in its host's event loop: work beside its callers, how long to wait, what to tell its logging."""
