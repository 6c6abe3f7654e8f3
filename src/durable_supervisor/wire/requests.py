"""What a caller may send over the socket: the bodies of requests.

Closed: a field that is not written here is refused, so that a misspelt bound
is never silently no bound.  Ranges and grammars are the model's (`model.command`,
`model.request`); here stands only what JSON may look like.
"""

from __future__ import annotations

import base64
import binascii
from typing import Annotated, Literal

from pydantic import Field, field_validator

from ..model.arguments import MAX_NOTE
from ..model.collecting import MAX_SECONDS
from ..model.command import (
    DEFAULT_GRACE,
    DEFAULT_OUTPUT_BYTES,
    MAX_LABELS,
    Command,
    Completion,
    Limits,
    OnLimit,
)
from ..model.policy import Policy
from ..model.request import MAX_PRIORITY, MAX_WINDOW, MIN_WINDOW, Lifetime
from ..model.terminal import Terminal
from .base import Count, Document, PolicyForm, RunId, Seconds, Seq, Side


class Base64Form(Document):
    """Bytes."""

    base64: str

    @field_validator("base64")
    @classmethod
    def _decodable(cls, text: str) -> str:
        try:
            base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError):
            raise ValueError("is not base64") from None
        return text


class TextForm(Document):
    """Text, written as UTF-8."""

    text: str


class TerminalForm(Document):
    """A pseudo-terminal for the program."""

    columns: Side = 80
    rows: Side = 24
    term: Annotated[str, Field(max_length=64)] = "xterm-256color"


class CommandForm(Document):
    """One invocation, without a shell; see `durable_supervisor.Command`."""

    argv: list[str] = Field(description="argv[0] is looked up on the program's own PATH")
    cwd: str | None = None
    env: dict[str, str] = Field(default={}, description="added to the base; values are never stored")
    secret_env: dict[str, str] = Field(default={}, description="the same, and kept out of the output")
    inherit_env: list[str] = Field(default=[], description="names to take over from the caller")
    stdin: Literal["open"] | Base64Form | TextForm | None = Field(
        default=None, description="null: empty; open: written to later"
    )
    secrets: list[str] = Field(default=[], description="further values to keep off the disk")
    pty: TerminalForm | None = None
    redact_tokens: bool = Field(default=True, description="keep what looks like a credential off the disk")


# A whole number stays one: a request's digest tells 30 from 30.0, in process and over the socket alike.
Number = Seconds | Annotated[int, Field(ge=0)]


class LimitsBody(Document):
    """Bounds of a run; null means unbounded."""

    timeout: Number | None = None
    idle_timeout: Number | None = None
    grace: Number = DEFAULT_GRACE
    max_stdout_bytes: Seq = DEFAULT_OUTPUT_BYTES
    max_stderr_bytes: Seq = DEFAULT_OUTPUT_BYTES
    on_limit: Annotated[OnLimit, Field(strict=False)] = OnLimit.TRUNCATE
    max_stdin_bytes: Count | None = None
    max_memory_bytes: Seq | None = None
    max_cpu_seconds: Number | None = None
    max_cpus: Number | None = None
    max_processes: Seq | None = None
    max_open_files: Seq | None = None
    max_file_bytes: Count | None = None


class HostForm(Document):
    """Facts about the caller's process, which its run starts from.

    A client library sends them, so that the same request means the same thing in
    process and over the socket; without them the service's own are taken.
    """

    environ: dict[str, str]
    cwd: str
    umask: Annotated[int, Field(ge=0, le=0o777)]
    nested_in: RunId | None = Field(default=None, description="the run that the caller is part of")


class StartBody(Document):
    """What ``start`` asks for."""

    command: CommandForm
    request_id: str | None = Field(
        default=None, description="the idempotency key, 1 to 128 of A-Z a-z 0-9 . _ -; null: one is made up"
    )
    limits: LimitsBody = LimitsBody()
    completion: Annotated[Completion, Field(strict=False)] = Completion.LEADER
    labels: dict[str, str] = Field(default={}, max_length=MAX_LABELS)
    owner: str | None = Field(default=None, description="must be the caller's own, unless it is an operator")
    namespace: str | None = Field(default=None, description="the same")
    queue: bool = Field(default=False, description="wait for a free slot instead of CAPACITY_EXHAUSTED")
    priority: Annotated[int, Field(ge=-MAX_PRIORITY, le=MAX_PRIORITY)] = 0
    policy: PolicyForm | None = None
    lifetime: Annotated[Lifetime, Field(strict=False)] = Field(
        default=Lifetime.DETACHED, description="scope: stopped when the caller's process is gone"
    )
    window: Annotated[int, Field(ge=MIN_WINDOW, le=MAX_WINDOW)] | None = Field(
        default=None, description="bytes of output that may be ahead of acknowledge"
    )
    host: HostForm | None = None


class StopBody(Document):
    """How a run is to be stopped; seconds."""

    grace: Seconds | None = Field(default=None, description="between TERM and KILL; null: the run's own")
    timeout: Seconds | None = Field(default=None, description="how long the answer may take")


class SignalBody(Document):
    """A signal for the leader or for the whole tree."""

    signal: Annotated[int, Field(ge=1, le=64)] | Annotated[str, Field(pattern=r"^[A-Z0-9+-]{1,16}$")] = Field(
        description="its number, or its name: TERM or SIGTERM", examples=["TERM", 15]
    )
    target: Literal["leader", "tree"] = "leader"
    timeout: Seconds = 5.0


class AcknowledgeBody(Document):
    """What was consumed of each stream, from its beginning on, in recorded bytes."""

    stdout: Count = 0
    stderr: Count = 0


class ResizeBody(Document):
    """The new size of a run's terminal."""

    columns: Side
    rows: Side
    timeout: Seconds = 5.0


class ResolveBody(Document):
    """An operator's word on an unknown or quarantined run."""

    action: Literal["accept", "kill", "wait"] = "accept"
    note: Annotated[str, Field(max_length=MAX_NOTE)] = ""


class ReconcileBody(Document):
    """Nothing."""


class GcBody(Document):
    """Which runs' logs may go: those of which every criterion that is given says so."""

    older_than: Annotated[Number, Field(le=MAX_SECONDS)] | None = Field(
        default=None, description="seconds since its end"
    )
    keep: Count | None = Field(default=None, description="so many of the newest that are over stay")
    max_bytes: Count | None = Field(
        default=None, description="the oldest go until all logs together take no more than this"
    )
    label: Annotated[list[str], Field(min_length=2, max_length=2)] | None = Field(
        default=None, description="name and value"
    )
    apply: bool = Field(default=False, description="false: a plan alone")


class ImportBody(Document):
    """A bundle, which the service itself opens."""

    bundle: Annotated[str, Field(min_length=1, max_length=4096)] = Field(description="an absolute path")


def command_of(form: CommandForm) -> Command:
    """Raises SupervisorError ``INVALID_REQUEST``."""
    return Command(
        argv=form.argv,
        cwd=form.cwd,
        env=form.env,
        secret_env=form.secret_env,
        inherit_env=form.inherit_env,
        stdin=_stdin_of(form.stdin),
        secrets=form.secrets,
        pty=None if form.pty is None else Terminal(**form.pty.model_dump()),
        redact_tokens=form.redact_tokens,
    )


def limits_of(form: LimitsBody) -> Limits:
    """Raises SupervisorError ``INVALID_REQUEST``."""
    return Limits(**form.model_dump())


def policy_of(form: PolicyForm | None) -> Policy | None:
    """Raises SupervisorError ``INVALID_REQUEST``."""
    return None if form is None else Policy.from_dict(form.model_dump())


def _stdin_of(form: Literal["open"] | Base64Form | TextForm | None) -> bytes | Literal["open"] | None:
    if isinstance(form, Base64Form):
        return base64.b64decode(form.base64)
    if isinstance(form, TextForm):
        return form.text.encode()
    return form
