"""The child that waits at the gate, made in either of two ways: see `process.gate`."""
