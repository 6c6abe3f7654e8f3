"""What is known about runs: ``list``, ``inspect``, ``wait``, ``events``, ``feed``, ``logs``."""
