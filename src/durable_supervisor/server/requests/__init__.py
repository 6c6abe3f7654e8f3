"""One request: who sends it, what it says, and how a failure is answered."""
