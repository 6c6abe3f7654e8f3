"""What is asked of runs: ``stop``, ``signal``, ``write-stdin``; ``resolve``, ``reconcile``, ``recover``."""
