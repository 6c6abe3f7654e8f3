"""What idle workers have alike in their memory, they share: see `process.samepage.merge`."""
