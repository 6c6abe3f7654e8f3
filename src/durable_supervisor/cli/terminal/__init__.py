"""The terminal that a person sits at, bound to a run: its keys, its screen, its way back."""
