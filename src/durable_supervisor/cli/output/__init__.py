"""What goes out: streams and bytes, made safe; the words for a state or an error; exit codes."""
