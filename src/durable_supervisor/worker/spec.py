"""What the supervisor hands to a worker, over a descriptor and never on disk."""

from __future__ import annotations

import socket

from ..model.tokens import redact
from ..process.channel import read_frame

# In this order the kernel, which lets the last of a dying process's descriptors go first, frees the
# lock before the channel ends. Nothing rests on it: who finds the lock held looks again.
CHANNEL_FD = 3  # the worker's end of its channel to the supervisor
LOG_FD = 4  # the locked run log
LAST_FD = max(CHANNEL_FD, LOG_FD)
NEXT_FD = 5  # where a supervisor that keeps this worker sends its next run; see `reuse`
FREE = "free"  # the channel's last word, of a worker to which the next run may be sent
# Only a run shorter than this leaves its worker to another one, measured after its lock was let go: who sees
# a worker hold a run for longer knows that the process will end with it, and may wait for that.
SHORT_RUN_SECONDS = 1.0
STDIN_NULL, STDIN_BYTES, STDIN_OPEN = "null", "bytes", "open"


class Spec:
    """One attempt of one run.  ``shown_argv`` and ``shown_cwd`` are redacted, for the log."""

    __slots__ = (
        "argv", "attempt", "completion", "cwd", "env", "grace", "host", "idle_timeout", "max_stderr_bytes",
        "max_stdin_bytes", "max_stdout_bytes", "on_limit", "plan", "priority", "pty", "queued",
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

    def shown(self, text: str) -> str:
        """Redacted like ``shown_argv``."""
        return redact(text, self.secrets, tokens=self.redact_tokens)

    @classmethod
    def from_message(cls, message: dict[str, object], blob: bytes) -> Spec:
        """From the first frame of the channel; its keys are the attribute names."""
        spec = cls()
        for name in cls.__slots__:
            if name != "stdin_bytes":
                setattr(spec, name, message[name])
        spec.stdin_bytes = blob
        return spec


def receive_spec(channel: socket.socket) -> Spec | None:
    """Wait for the whole spec.  None: the supervisor died first, so nothing was dispatched."""
    frame = read_frame(channel)
    return None if frame is None else Spec.from_message(*frame)
