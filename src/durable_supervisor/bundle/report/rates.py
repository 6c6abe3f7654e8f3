"""How much came out when: a histogram over a time whose end is not known beforehand."""

from __future__ import annotations

_BINS = 200
_FIRST_WIDTH = 0.001


class Rates:
    """Bytes in equal bins.  When time outgrows them, two become one, so there are never more."""

    def __init__(self) -> None:
        self.width = _FIRST_WIDTH  # seconds of a bin
        self.bins: dict[str, list[int]] = {}

    def add(self, stream: str, seconds: float, count: int) -> None:
        while seconds >= self.width * _BINS:
            self.width *= 2
            self.bins = {
                name: [sum(bins[at : at + 2]) for at in range(0, _BINS, 2)] + [0] * (_BINS // 2)
                for name, bins in self.bins.items()
            }
        bins = self.bins.setdefault(stream, [0] * _BINS)
        bins[max(int(seconds / self.width), 0)] += count

    @property
    def most(self) -> int:
        """The fullest bin of any stream."""
        return max((max(bins) for bins in self.bins.values()), default=0)
