"""Who holds a slot, who waits for one, and who is next."""
