"""From an admitted request to a released program: log, lock, intent, hand over."""
