"""What the processes of one run have used, added up as they are reaped."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from resource import struct_rusage


class Usage:
    """As RUSAGE_CHILDREN of getrusage(2) has it, but of one run: a worker may have had others before.

    wait4(2) tells of each child with all that it had reaped itself: times add up, and of
    the peaks, which the kernel never resets for a parent, the highest counts.
    """

    __slots__ = ("max_rss_kib", "system_seconds", "user_seconds")

    def __init__(self) -> None:
        self.user_seconds = 0.0
        self.system_seconds = 0.0
        self.max_rss_kib = 0

    def add(self, used: struct_rusage) -> None:
        """One more child, just reaped."""
        self.user_seconds += used.ru_utime
        self.system_seconds += used.ru_stime
        self.max_rss_kib = max(self.max_rss_kib, used.ru_maxrss)

    def to_dict(self) -> dict[str, object]:
        """As the receipt has it."""
        return {
            "user_seconds": round(self.user_seconds, 6),
            "system_seconds": round(self.system_seconds, 6),
            "max_rss_kib": self.max_rss_kib,
        }
