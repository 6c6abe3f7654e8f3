"""A start as its caller sees it: in an event loop or without one, from the request to the answer."""
