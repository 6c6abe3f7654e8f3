"""A directory kept in order: ``gc``, ``backup``, ``verify``, ``audit``."""
