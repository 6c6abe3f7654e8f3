"""What one output stream has had, kept and lost."""

from __future__ import annotations

UNBOUNDED = 1 << 62


class StreamQuota:
    """Counters of a stream, in bytes, and the sizes that its cap leads to.

    ``total``: ever given.  ``dropped``: of these, not in the log.  ``lost``: dropped for
    want of space and not told by an event yet; ``refused``: the same, beyond the cap.
    ``in_segment``: stored in the open segment.  ``slot``: at most so much of one segment
    (the head's share too).  ``tail_budget``: at most so much of one chunk.
    """

    __slots__ = (
        "dropped", "flag", "hard_cap", "in_segment", "lost", "name", "refused", "slot", "tail_budget",
        "total",
    )  # fmt: skip

    def __init__(self, name: str, flag: int, cap: int, truncate: bool) -> None:
        self.name = name
        self.flag = flag
        self.slot = max(cap // 8, 1) if truncate else UNBOUNDED
        self.tail_budget = max(cap - self.slot, 1) if truncate else UNBOUNDED
        # A single byte cannot be both head and tail: there the head is all.
        self.hard_cap = UNBOUNDED if truncate and cap > 1 else cap
        self.total = 0
        self.dropped = 0
        self.lost = 0
        self.refused = 0
        self.in_segment = 0

    def lose(self, size: int) -> None:
        self.lost += size
        self.dropped += size

    def refuse(self, size: int) -> None:
        self.refused += size
        self.dropped += size

    def within_hard_cap(self, offset: int, size: int) -> int:
        """How much of a chunk at ``offset`` of the stream may be stored at all."""
        return min(size, max(self.hard_cap - offset, 0))

    def head_piece(self, size: int, *, first: bool) -> int:
        """How much of a chunk that is too large for a segment still belongs to the head."""
        return max(self.slot - self.in_segment, 0) if first and size > self.slot else 0
