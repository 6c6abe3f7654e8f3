"""Evidence in, verdict out: observe, decide (pure), act."""
