"""What all documents share: closed for our own tests, open in the published schemas."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from ..model.command import Completion, OnLimit
from ..model.outcome import OutcomeKind
from ..model.policy import MAX_GRANTS
from ..model.winsize import MAX_SIDE

Json = dict[str, JsonValue]
Time = Annotated[
    str,
    Field(
        pattern=r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}\.\d{6}Z$",
        description="RFC 3339, UTC, microseconds",
        examples=["2026-01-02T03:04:05.000006Z"],
    ),
]
Seq = Annotated[int, Field(ge=1)]
Count = Annotated[int, Field(ge=0)]
Side = Annotated[int, Field(ge=1, le=MAX_SIDE, description="in characters")]
Seconds = Annotated[float, Field(ge=0)]
RunId = Annotated[str, Field(pattern=r"^[0-9a-z]{16}$")]


class Document(BaseModel):
    """A JSON object whose fields are exactly the ones written here."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, strict=True)


class Open(BaseModel):
    """A JSON object that may hold more than the fields written here: the details of events."""

    model_config = ConfigDict(extra="allow", frozen=True, allow_inf_nan=False, strict=True)


Level = Literal["best_effort", "required"]
Axis = Literal[
    "tree", "files", "network", "memory", "cpu", "processes", "open_files", "file_size", "privileges"
]


class Identity(Document):
    """One process, for ever: see `durable_supervisor.model.identity`."""

    pid: Annotated[int, Field(ge=1)]
    create_time: float = Field(description="Unix seconds; for people, moves with the wall clock")
    start_ticks: Count = Field(description="clock ticks since boot")
    boot_id: str
    pid_ns: str
    time_ns: str


class OutcomeForm(Document):
    """Why it ended (kind), and how: exactly one of code and signal is a number."""

    kind: OutcomeKind
    code: int | None
    signal: int | None


class LimitsForm(Document):
    """Bounds of a run; null means unbounded."""

    timeout: Seconds | None
    idle_timeout: Seconds | None
    grace: Seconds
    max_stdout_bytes: Seq
    max_stderr_bytes: Seq
    on_limit: OnLimit
    max_stdin_bytes: Count | None = None
    max_memory_bytes: Seq | None = None
    max_cpu_seconds: Seconds | None = None
    max_cpus: Seconds | None = None
    max_processes: Seq | None = None
    max_open_files: Seq | None = None
    max_file_bytes: Count | None = None


class GrantForm(Document):
    """A path that the program may use, with everything beneath it."""

    path: str = Field(description="absolute")
    access: Literal["read", "execute", "write", "all"] = "read"


class PolicyForm(Document):
    """How a program is confined; see `durable_supervisor.Policy`."""

    network: Literal["host", "none", "loopback"] = "host"
    filesystem: list[GrantForm] | None = Field(
        default=None, description="null: everything", max_length=MAX_GRANTS
    )
    enforcement: Level | dict[Axis, Level] = Field(
        default="best_effort", description="for all axes, or for each by name"
    )
    files_backend: Literal["auto", "landlock", "bubblewrap"] = "auto"


class AxisReport(Document):
    """What was enforced on one axis, of what was asked."""

    requested: Json | list[object] | str | int | float | bool | None
    applied: Literal["full", "partial", "none"]
    mechanism: str | None
    reason: str | None = Field(description="why it is less than was asked for")
    oom_kills: int | None = Field(
        default=None,
        description="in a receipt, of memory: how many of the tree the kernel killed for want of it",
    )


class PtyForm(Document):
    """The terminal that a program was given, as it was asked for."""

    columns: Side
    rows: Side
    term: str = Field(description="the program's TERM, unless its environment says another")


__all__ = [
    "Axis",
    "AxisReport",
    "Completion",
    "Count",
    "Document",
    "Identity",
    "Json",
    "LimitsForm",
    "Open",
    "OutcomeForm",
    "PolicyForm",
    "PtyForm",
    "RunId",
    "Seconds",
    "Seq",
    "Side",
    "Time",
]
