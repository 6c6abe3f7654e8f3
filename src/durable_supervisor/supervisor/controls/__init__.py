"""What is asked of a worker: stop, signal, stdin, attach; and an operator's word where there is none."""
