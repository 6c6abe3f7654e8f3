"""Files: which paths a program may use, and the mechanisms that hold it to them."""
