"""What journal and logs say of runs, with or without an owner."""
