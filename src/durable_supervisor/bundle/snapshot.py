"""A run's log as it is at one moment, held open: what is taken away meanwhile can still be copied."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from ..model.errors import ErrorCode, Phase, SupervisorError
from ..runlog.files import NotRegularError, list_segments, open_regular
from ..runlog.paths import RunPaths, SegmentKey

_CHUNK = 1 << 20
_MOST_LOOKS = 100


@dataclass(frozen=True, slots=True)
class Segment:
    """One open segment; ``size`` is where it ended when it was looked at."""

    attempt: int
    key: SegmentKey
    fd: int
    size: int

    def chunks(self) -> Iterator[bytes]:
        """Its bytes up to ``size``; a live log only ever grows behind that."""
        at = 0
        while at < self.size:
            data = os.pread(self.fd, min(_CHUNK, self.size - at), at)
            if not data:
                raise OSError("a log became shorter while it was read")
            yield data
            at += len(data)


class Snapshot:
    """Every segment of every attempt, in order.  Close it: it holds a descriptor for each.

    Raises SupervisorError ``BUSY`` when the log is compacted again and again meanwhile.
    """

    def __init__(self, paths: RunPaths, attempts: int) -> None:
        self.segments: list[Segment] = []
        try:
            for attempt in range(1, attempts + 1):
                self.segments += _hold(paths, attempt)
        except BaseException:
            self.close()
            raise

    @property
    def size(self) -> int:
        """Bytes in all."""
        return sum(segment.size for segment in self.segments)

    def close(self) -> None:
        """Idempotent."""
        _close(self.segments)
        self.segments = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _hold(paths: RunPaths, attempt: int) -> list[Segment]:
    for _ in range(_MOST_LOOKS):
        keys = list_segments(paths, attempt)
        held = _open_all(paths, attempt, keys)
        # A listing is no snapshot beside a compaction; one that is the same afterwards is.
        if held is not None and list_segments(paths, attempt) == keys:
            return held
        _close(held or [])
    raise SupervisorError(
        ErrorCode.BUSY,
        "the log is being compacted while it is copied",
        phase=Phase.READ,
        retryable=True,
        hint="try again",
    )


def _open_all(paths: RunPaths, attempt: int, keys: list[SegmentKey]) -> list[Segment] | None:
    """None when one was taken away meanwhile.  A first segment that is lost or no file is left out."""
    held: list[Segment] = []
    try:
        for key in keys:
            try:
                fd, size = open_regular(paths.segment_file(attempt, key))
            except (FileNotFoundError, NotRegularError):
                if key == keys[0]:
                    continue
                _close(held)
                return None
            held.append(Segment(attempt, key, fd, size))
    except BaseException:
        _close(held)
        raise
    return held


def _close(segments: list[Segment]) -> None:
    for segment in segments:
        os.close(segment.fd)
