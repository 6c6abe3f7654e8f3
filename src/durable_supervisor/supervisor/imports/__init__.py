"""Runs of other directories: how they come in, and how they lie here."""
