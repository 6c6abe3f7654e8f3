"""What confines a program: what is asked, what this machine can do, and the plan from both."""
