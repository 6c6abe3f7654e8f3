"""``doctor`` and ``capabilities``: what this machine gives, and what is amiss."""
