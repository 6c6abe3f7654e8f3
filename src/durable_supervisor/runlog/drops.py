"""What `output.dropped` events say: one range of seqs, the bytes of each stream, the reason."""

from __future__ import annotations

from durable_supervisor.model.events import Kind

from .format import EVENT, MAX_META, OUTPUT, STREAMS, encode_json
from .segment import Pending

LIMIT, DISK_FULL, IO_ERROR = "limit", "disk_full", "io_error"
_OURS = frozenset({LIMIT, DISK_FULL, IO_ERROR})


class DropRun:
    """A run of consecutive seqs that a single event will stand for.

    Its detail: ``first_seq``; ``bytes`` and ``events`` dropped; ``reason``; and ``stream``,
    or ``streams`` (``{"stdout": bytes, "stderr": bytes}``) when it took from both.
    """

    __slots__ = ("elapsed_ns", "events", "first_seq", "reason", "seq", "sizes", "wall_ns")

    def __init__(self, first_seq: int, reason: str) -> None:
        self.first_seq = first_seq
        self.reason = reason
        self.seq = first_seq
        self.sizes = [0, 0]
        self.events = 0
        self.wall_ns = 0
        self.elapsed_ns = 0

    def take(self, seq: int, wall_ns: int, elapsed_ns: int) -> None:
        self.seq = seq
        self.wall_ns = wall_ns
        self.elapsed_ns = elapsed_ns

    def take_output(self, stream: int, size: int) -> None:
        self.sizes[stream] += size
        self.events += 1

    def absorb(self, detail: dict[str, object]) -> None:
        """Take over an earlier `output.dropped` event, so that ranges that touch become one."""
        for stream, size in enumerate(dropped_sizes(detail)):
            self.sizes[stream] += size
        self.events += _count(detail.get("events"))
        self.reason = self.reason if detail.get("reason") == self.reason else LIMIT

    def detail(self) -> dict[str, object]:
        form: dict[str, object] = {
            "first_seq": self.first_seq,
            "bytes": sum(self.sizes),
            "events": self.events,
            "reason": self.reason,
        }
        if all(self.sizes):
            form["streams"] = dict(zip(STREAMS, self.sizes, strict=True))
        else:
            form["stream"] = STREAMS[1] if self.sizes[1] else STREAMS[0]
        return form

    def meta(self) -> bytes:
        return event_meta(Kind.OUTPUT_DROPPED, self.detail())

    def record(self) -> Pending:
        return (EVENT, 0, self.seq, self.wall_ns, self.elapsed_ns, self.meta(), b"")


def event_meta(kind: str, detail: dict[str, object]) -> bytes:
    """The meta of an event record.  Raises ValueError when it is no JSON or over 16 MiB."""
    meta = encode_json({"kind": kind, "detail": detail})
    if len(meta) > MAX_META:
        raise ValueError(f"the detail of {kind} is too large for the log")
    return meta


def shed(pending: list[Pending], reason: str) -> tuple[list[Pending], list[int]]:
    """The batch with one event in the place of each run of output, and the bytes that went of each stream."""
    kept: list[Pending] = []
    sizes = [0, 0]
    run: DropRun | None = None
    for record in pending:
        if record[0] == OUTPUT:
            run = run or DropRun(record[2], reason)
            run.take(record[2], record[3], record[4])
            run.take_output(record[1] - 1, len(record[6]))
            sizes[record[1] - 1] += len(record[6])
            continue
        if run is not None:
            kept.append(run.record())
            run = None
        kept.append(record)
    if run is not None:
        kept.append(run.record())
    return kept, sizes


def absorbable(kind: str, detail: dict[str, object]) -> bool:
    return kind == Kind.OUTPUT_DROPPED and detail.get("reason") in _OURS


def dropped_sizes(detail: dict[str, object]) -> tuple[int, int]:
    """``(stdout, stderr)`` bytes that an `output.dropped` event counts."""
    streams = detail.get("streams")
    if isinstance(streams, dict):
        return _count(streams.get(STREAMS[0])), _count(streams.get(STREAMS[1]))
    size = _count(detail.get("bytes"))
    return (0, size) if detail.get("stream") == STREAMS[1] else (size, 0)


def _count(value: object) -> int:
    return value if isinstance(value, int) else 0
