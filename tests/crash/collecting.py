"""The steps of a collection at which its owner may die."""

from __future__ import annotations

COLLECTIONS = ("gc.chosen", "gc.recorded", "gc.collected", "gc.unlinking", "gc.removed")

# The next owner dies while it finishes what the one before has begun.
REOPENINGS = ("open.collected",)
