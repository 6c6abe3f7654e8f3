"""The socket and its name in the file system, and the connections that are let in."""
