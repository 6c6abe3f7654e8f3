"""Looking after whole state directories: a copy of one, and whether all of one is as it should be."""
