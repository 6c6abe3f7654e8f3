"""One event of a run, and the one vocabulary of event kinds."""

from __future__ import annotations

import time

TYPE_CHECKING = False  # importing typing would cost every worker's start some milliseconds
if TYPE_CHECKING:
    from .result import RunResult


class Kind:
    """Event kinds.  Plain strings, so that a newer log's kinds pass through an older reader."""

    OUTPUT = "output"
    OUTPUT_DROPPED = "output.dropped"
    RUN_QUEUED = "run.queued"
    RUN_DISPATCHED = "run.dispatched"
    RUN_STOPPING = "run.stopping"
    RUN_WARNING = "run.warning"
    RUN_LOG_REPAIRED = "run.log_repaired"
    RUN_WORKER_CRASHED = "run.worker_crashed"
    RUN_FINISHED = "run.finished"
    RUN_NOT_STARTED = "run.not_started"
    RUN_UNKNOWN = "run.unknown"
    RUN_QUARANTINED = "run.quarantined"
    RUN_RESOLVED = "run.resolved"
    PROGRAM_SPAWNED = "program.spawned"
    PROGRAM_CONFINED = "program.confined"
    PROGRAM_RELEASED = "program.released"
    PROGRAM_EXEC_FAILED = "program.exec_failed"
    PROGRAM_SIGNALLED = "program.signalled"
    PROGRAM_EXITED = "program.exited"
    CONTROL_RECEIVED = "control.received"
    CONTROL_APPLIED = "control.applied"


ALL_KINDS = frozenset(value for name, value in vars(Kind).items() if name.isupper())
# After one of these the run's own log says no more about this attempt.
TERMINAL_KINDS = frozenset({Kind.RUN_FINISHED, Kind.RUN_NOT_STARTED, Kind.RUN_UNKNOWN})


class Event:
    """One entry of a run's timeline.

    ``seq`` counts from 1 without gaps over the run's whole life.  ``wall_ns`` is
    Unix nanoseconds, UTC; ``elapsed_ns`` is monotonic nanoseconds since the
    worker began.  ``detail`` is the JSON object of its kind; ``data`` is the raw
    bytes of an ``output`` event and empty otherwise.  Its shape: `to_dict`.

    An ``output.dropped`` event stands for the whole range
    ``detail["first_seq"] .. seq``.
    """

    __slots__ = ("data", "detail", "elapsed_ns", "kind", "seq", "wall_ns")

    def __init__(
        self,
        seq: int,
        wall_ns: int,
        elapsed_ns: int,
        kind: str,
        detail: dict[str, object],
        data: bytes = b"",
    ) -> None:
        self.seq = seq
        self.wall_ns = wall_ns
        self.elapsed_ns = elapsed_ns
        self.kind = kind
        self.detail = detail
        self.data = data

    @property
    def stream(self) -> str | None:
        """``"stdout"`` or ``"stderr"`` for output and what was dropped of it, else None."""
        stream = self.detail.get("stream")
        return stream if isinstance(stream, str) else None

    @property
    def offset(self) -> int | None:
        """Where ``data`` begins in its stream, in recorded bytes; None for other kinds."""
        offset = self.detail.get("offset")
        return offset if isinstance(offset, int) else None

    @property
    def text(self) -> str:
        """``data`` as UTF-8; what is not UTF-8 shows as U+FFFD (the bytes are in ``data``)."""
        return self.data.decode("utf-8", "replace")

    @property
    def result(self) -> RunResult | None:
        """Of ``run.finished``: how the run ended, without its output; None for other kinds."""
        if self.kind != Kind.RUN_FINISHED:
            return None
        from .result import RunResult  # no worker ever asks for it

        return RunResult.from_receipt(self.detail)

    def __repr__(self) -> str:
        return f"Event({self.seq}, {self.kind})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Event) and all(
            getattr(self, name) == getattr(other, name) for name in Event.__slots__
        )

    def __hash__(self) -> int:
        return hash((self.seq, self.kind, self.wall_ns))

    def to_dict(self) -> dict[str, object]:
        """The JSON form that every face prints; see ``docs/events.md``."""
        form = self.entry()
        if self.kind == Kind.OUTPUT:
            try:
                form["text"] = self.data.decode("utf-8")
            except UnicodeDecodeError:
                from .event_json import base64_of

                form["text"] = self.text
                form["base64"] = base64_of(self.data)
        return form

    def to_json(self) -> bytes:
        """`to_dict` as one line of ASCII, without its newline; for large output faster than `json.dumps`."""
        from .event_json import to_json  # no worker ever asks for it

        return to_json(self)

    def entry(self) -> dict[str, object]:
        """`to_dict` without the bytes of output."""
        form: dict[str, object] = {
            "seq": self.seq,
            "time": iso_time(self.wall_ns),
            "elapsed": round(self.elapsed_ns / 1e9, 6),
            "kind": self.kind,
        }
        if self.kind == Kind.OUTPUT:
            form["stream"] = self.stream
            form["offset"] = self.offset
        else:
            form["detail"] = self.detail
        return form


def iso_time(wall_ns: int) -> str:
    """Unix nanoseconds as RFC 3339 UTC with microseconds, e.g. ``2026-01-02T03:04:05.000006Z``."""
    seconds, rest = divmod(wall_ns, 1_000_000_000)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{rest // 1000:06d}Z"
