"""The words of a command line: how a verb declares what it takes, and what values they make."""
