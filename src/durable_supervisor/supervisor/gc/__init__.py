"""What is over and goes: logs, imported runs, groups of processes; and what stays known of it."""
