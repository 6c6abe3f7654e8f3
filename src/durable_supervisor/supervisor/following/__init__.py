"""News of runs, and how their ends are learned: told, where that can be, not polled for."""
