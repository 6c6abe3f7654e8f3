"""``attach`` and ``replay``: a run on this terminal, as it is or as it was."""
