"""The detail object of every event kind.  ``docs/events.md`` says the same in words.

Fields named here are there; a newer worker may add others.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from ..model.events import Kind
from .base import (
    Axis,
    AxisReport,
    Count,
    Identity,
    Json,
    Open,
    OutcomeForm,
    PtyForm,
    RunId,
    Seconds,
    Seq,
    Side,
    Time,
)

Stream = Literal["stdout", "stderr"]


class Dropped(Open):
    """Stands for every event from ``first_seq`` to the event's own ``seq``."""

    first_seq: Seq
    reason: Literal["limit", "disk_full", "io_error", "corrupt"]
    stream: Stream | None = None
    bytes: Count | None = None
    events: Count | None = None


class Queued(Open):
    """A worker holds the run until there is a slot for it; nothing of its program exists yet."""

    attempt: Seq
    identity: Identity
    priority: int = Field(description="a greater one goes first")


class Dispatched(Open):
    """The worker has taken over the run; ``argv`` and ``cwd`` are redacted."""

    attempt: Seq
    identity: Identity
    argv: list[str]
    cwd: str
    pty: PtyForm | None = None


class Stopping(Open):
    """The stop ladder has begun."""

    reason: str = Field(
        description="stop, timeout, idle_timeout, stdout_limit, stderr_limit, out_of_memory, cpu_time,"
        " host_gone, leftover, worker_terminated"
    )
    grace: Seconds
    control_id: str | None = None


class Warned(Open):
    """Something went wrong that changes nothing about the outcome."""

    reason: str


class LogRepaired(Open):
    """Bytes that could not be read were sealed off; a new generation begins here."""

    reason: str
    segment: str
    offset: Count
    skipped_bytes: Count
    generation: Seq


class WorkerCrashed(Open):
    """The worker's own last words, redacted."""

    text: str


class StreamTotals(Open):
    """What came out of one stream."""

    bytes: Count
    dropped: Count
    complete: bool


class Executable(Open):
    """What was asked for, and the file that was executed; both redacted."""

    requested: str
    canonical: str


class Receipt(Open):
    """How a run ended, from waitid(2) and the worker's own bookkeeping."""

    attempt: Seq
    outcome: OutcomeForm
    exit: Json = Field(description='{"code", "signal"} as waitid gave them')
    rusage: Json | None = Field(description="user_seconds, system_seconds, max_rss_kib of all reaped")
    started_at: Time
    finished_at: Time
    duration: Seconds
    output: dict[Stream, StreamTotals]
    stdin_bytes: Count = Field(description="bytes that reached the program's stdin pipe")
    survivors: list[Identity] = Field(description="what was still alive when the stop ladder gave up")
    stop: Json | None = Field(description="why it was stopped, or null")
    incomplete: bool = Field(description="true: rebuilt from the exit status, the worker was lost")
    cleanup_confirmed: bool = Field(description="true: waitid said ECHILD, nothing of the tree is left")

    run_id: RunId | None = Field(default=None, description="absent in receipts of older workers")
    executable: Executable | None = None
    enforcement: dict[Axis, AxisReport] | None = Field(
        default=None,
        description="of an axis that is missing, as in the log of a run without policy, nothing was asked",
    )


class Verdict(Open):
    """A verdict on a run without an outcome."""

    reason: str
    evidence: Json | None = None


class NotStarted(Open):
    """User code never ran.  ``errno``: what the kernel said; ``axis``: what it could not be held to."""

    reason: str
    errno: int | None = None
    error: str | None = None
    step: str | None = None
    path: str | None = None
    axis: Axis | None = None
    detail: str | None = Field(default=None, description="why the axis could not be enforced")


class Resolved(Open):
    """An operator's word."""

    action: str
    note: str = ""
    by_uid: Count | None = None
    at: Time | None = None


class Spawned(Open):
    """The program is forked and held at the gate; ``requested`` resolved to ``canonical``."""

    identity: Identity
    requested: str
    canonical: str


class Confined(Open):
    """What the paused program was confined by, before it was released."""

    enforcement: dict[Axis, AxisReport]


class Released(Open):
    """The gate is open: user code runs from here on."""


class ExecFailed(Open):
    """``error`` is the errno's name, ``step`` is worker, cwd, resolve, host, terminal, exec or prepare."""

    errno: int
    error: str
    step: str
    path: str


class Signalled(Open):
    """A signal that the stop ladder or a control has sent."""

    signal: Seq
    name: str
    pids: list[int]
    step: str | None = None


class Exited(Open):
    """The leader's own end; the rest of the tree may go on for a while."""

    code: int | None
    signal: int | None


class ControlReceived(Open):
    """Logged before it is applied.  For stdin the number of bytes, never the bytes."""

    id: str
    op: str
    peer_pid: int | None = None
    grace: Seconds | None = None
    signal: int | None = None
    target: str | None = None
    bytes: Count | None = None
    columns: Side | None = None
    rows: Side | None = None
    steal: bool | None = None


class ControlApplied(Open):
    """The control's receipt."""

    id: str
    op: str
    result: str
    signal: int | None = None
    pids: list[int] | None = None
    bytes: Count | None = None
    columns: Side | None = None
    rows: Side | None = None
    holder_pid: int | None = None


DETAILS: dict[str, type[Open]] = {
    Kind.OUTPUT_DROPPED: Dropped,
    Kind.RUN_QUEUED: Queued,
    Kind.RUN_DISPATCHED: Dispatched,
    Kind.RUN_STOPPING: Stopping,
    Kind.RUN_WARNING: Warned,
    Kind.RUN_LOG_REPAIRED: LogRepaired,
    Kind.RUN_WORKER_CRASHED: WorkerCrashed,
    Kind.RUN_FINISHED: Receipt,
    Kind.RUN_NOT_STARTED: NotStarted,
    Kind.RUN_UNKNOWN: Verdict,
    Kind.RUN_QUARANTINED: Verdict,
    Kind.RUN_RESOLVED: Resolved,
    Kind.PROGRAM_SPAWNED: Spawned,
    Kind.PROGRAM_CONFINED: Confined,
    Kind.PROGRAM_RELEASED: Released,
    Kind.PROGRAM_EXEC_FAILED: ExecFailed,
    Kind.PROGRAM_SIGNALLED: Signalled,
    Kind.PROGRAM_EXITED: Exited,
    Kind.CONTROL_RECEIVED: ControlReceived,
    Kind.CONTROL_APPLIED: ControlApplied,
}
