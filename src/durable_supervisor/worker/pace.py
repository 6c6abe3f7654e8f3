"""How soon a stream is read again."""

from __future__ import annotations

PAUSE_SECONDS = 0.005
_READS = 8  # of a stream that are judged together
_SMALL = 16 * 1024  # bytes: a quarter of what a pipe holds by itself (pipe(7))
_SILENT_SECONDS = 10 * PAUSE_SECONDS


class Pace:
    """At once, but for what a program writes little by little and all the time: that is read after a pause.

    Else each of its writes would wake us: for 32 programs that write each millisecond, that took more than
    half of two processors.  No write may wait for a pause, so there is one only where the bytes that come in
    it are far fewer than a pipe holds.
    """

    __slots__ = ("_began", "_bytes", "_pausing", "_read_at", "_reads")

    def __init__(self) -> None:
        self._read_at = self._began = 0.0
        self._reads = self._bytes = 0
        self._pausing = False

    def may_pause(self, got: int, now: float) -> bool:
        """So many bytes were read ``now``, on some steady clock: can the next ones wait `PAUSE_SECONDS`?"""
        if got > _SMALL or now - self._read_at > _SILENT_SECONDS:
            self.reset(now)
        self._read_at = now
        self._reads += 1
        self._bytes += got
        if self._reads < _READS:
            return False
        elapsed = now - self._began
        often = self._pausing or elapsed < _READS * PAUSE_SECONDS / 2  # else a pause would wake us once more
        slow = self._bytes * PAUSE_SECONDS < _SMALL * elapsed
        if not (often and slow):
            self.reset(now)
            return False
        self._pausing = True
        return True

    def reset(self, now: float) -> None:
        """Judge it anew by what comes from now on."""
        self._began, self._reads, self._bytes, self._pausing = now, 0, 0, False
