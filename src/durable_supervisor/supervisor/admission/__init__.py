"""What a request comes to, with the facts of its host, and what is refused.  Nothing is written."""
