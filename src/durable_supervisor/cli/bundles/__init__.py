"""Runs as files: ``export``, ``report``, ``import``."""
