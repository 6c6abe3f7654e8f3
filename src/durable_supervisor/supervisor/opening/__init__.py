"""From a state directory to a journal that can be relied on; made anew from the logs where it was lost."""
