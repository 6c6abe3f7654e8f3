"""Small applications around a supervisor, each measured as a process of its own."""
