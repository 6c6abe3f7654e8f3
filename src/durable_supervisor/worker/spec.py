"""What the supervisor hands to a worker, over a descriptor and never on disk."""

from __future__ import annotations

import socket

from ..model.tokens import redact
from ..process.channel import read_frame, read_frame_with_fd

FREE = "free"  # the last word of a run, from a worker to which the next one may be sent
# Only a run shorter than this leaves its worker to another one, measured after its lock was let go: who sees
# a worker hold a run for longer knows that the process will end with it, and may wait for that.
SHORT_RUN_SECONDS = 1.0
STDIN_NULL, STDIN_BYTES, STDIN_OPEN = "null", "bytes", "open"

_NOT_NAMED = ("model", "stdin_bytes")  # by who starts a run


class Spec:
    """One attempt of one run.  ``shown_argv`` and ``shown_cwd`` are redacted, for the log."""

    __slots__ = (
        "argv", "attempt", "completion", "cwd", "env", "grace", "host", "idle_timeout", "max_stderr_bytes",
        "max_stdin_bytes", "max_stdout_bytes", "model", "on_limit", "plan", "priority", "pty", "queued",
        "redact_tokens", "run_id", "runs_dir", "secrets", "shard", "shown_argv", "shown_cwd", "stdin",
        "stdin_bytes", "timeout", "umask", "window",
    )  # fmt: skip

    run_id: str
    attempt: int
    runs_dir: str
    shard: str
    argv: list[str]
    cwd: str
    env: dict[str, str]
    umask: int
    secrets: list[str]
    shown_argv: list[str]
    shown_cwd: str
    completion: str
    timeout: float | None
    idle_timeout: float | None
    grace: float
    max_stdout_bytes: int
    max_stderr_bytes: int
    on_limit: str
    priority: int
    queued: bool  # wait for the word before anything of the program is made
    stdin: str
    stdin_bytes: bytes
    pty: dict[str, object] | None  # columns, rows, term; None: pipes
    plan: dict[str, object] | None  # how the program is confined: see `sandbox.plan`; None: not at all
    host: dict[str, object] | None  # whose end is this run's, as an identity; None: nobody's
    window: int | None  # bytes of output that may be ahead of whoever acknowledges it
    max_stdin_bytes: int | None
    redact_tokens: bool
    model: bool  # there is no run: see `worker.model`

    def shown(self, text: str) -> str:
        """Redacted like ``shown_argv``."""
        return redact(text, self.secrets, tokens=self.redact_tokens)

    @classmethod
    def from_message(cls, message: dict[str, object], blob: bytes) -> Spec:
        """From the first frame of the channel; its keys are the attribute names."""
        spec = cls()
        for name in cls.__slots__:
            if name not in _NOT_NAMED:
                setattr(spec, name, message[name])
        spec.model = message.get("model") is True
        spec.stdin_bytes = blob
        return spec


def receive_spec(channel: socket.socket) -> Spec | None:
    """Wait for the whole spec.  None: the supervisor died first, so nothing was dispatched."""
    frame = read_frame(channel)
    return None if frame is None else Spec.from_message(*frame)


def receive_next(channel: socket.socket) -> tuple[Spec, int] | None:
    """Wait for another run: its spec, and the log's descriptor that came with it.  None: there will be none.

    What has no log with it was meant for the run that is over, and came too late for that: it is for nobody.
    Raises OSError where a log did come and is lost: nobody has that run, and our end tells so.
    """
    while (frame := read_frame_with_fd(channel)) is not None:
        message, blob, log_fd = frame
        if log_fd >= 0:
            return Spec.from_message(message, blob), log_fd
    return None
