"""From a request to an intent, a log header and a spec.  Decisions only; nothing is written."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from ...journal.rows import Admission, Intent
from ...model.command import DEFAULT_LIMITS
from ...model.digest import field_digest, request_digests
from ...model.environment import program_environment
from ...model.errors import ErrorCode, Phase, SupervisorError, invalid
from ...model.identity import ProcessIdentity
from ...model.named_tuple import NamedTuple
from ...model.request import Lifetime, Queueing, StartRequest, check_window
from ...model.secrets import MAX_SECRETS, secret_spans, secret_values
from ...model.states import RunState
from ...model.tokens import redact
from ...process.channel import encode_frame
from ...runlog.format import SegmentHeader
from ...runlog.paths import RunPaths
from ...worker.spec import STDIN_BYTES, STDIN_NULL, STDIN_OPEN

if TYPE_CHECKING:
    from ...model.command import Command
    from ..policy.confinement import Ruling


# Those that a worker itself holds a run to; the kernel's are in its plan.
WORKER_LIMITS = ("timeout", "idle_timeout", "grace", "max_stdout_bytes", "max_stderr_bytes", "on_limit")

_DEFAULT_LIMITS = DEFAULT_LIMITS.to_dict()

# No kernel takes as many (execve(2): 6 MiB for all, pointers included), and readers of logs take no more
# than `runlog.format.MAX_VALUES`.
MAX_STRINGS = 700_000


class Host(NamedTuple):
    """What a start takes from the process that asks for it."""

    environ: Mapping[str, str]  # at least what the program is given of it
    cwd: str  # absolute and normal (`os.path.normpath`), or "" where it was deleted
    umask: int
    nested_in: str | None
    survives_unit_restart: bool | None
    process: ProcessIdentity | None = None  # who it is; None where its end cannot be watched from here
    hung_up: Callable[[], bool] = lambda: False  # has it given up the call that asks?


class Place(NamedTuple):
    """Where an attempt goes: which run, which serial, which seq its log begins with."""

    run_id: str
    serial: int
    shard: str
    attempt: int
    first_seq: int


class Prepared:
    """A request made ready: digests to compare by, and everything to dispatch with.

    ``generated_id``: its request id was made up just now (80 random bits), so the journal cannot know it.
    Secret values are in the spec alone, which travels by descriptor; what is
    stored has them replaced.
    """

    def __init__(
        self,
        request: StartRequest,
        host: Host,
        key: bytes,
        queueing: Queueing,
        *,
        window: int | None = None,
        generated_id: bool = False,
    ) -> None:
        command = request.command
        if len(command.argv) + len(command.env) + len(command.inherit_env) > MAX_STRINGS:
            raise invalid("argv", f"and the environment are more than {MAX_STRINGS} strings")
        self.request = request
        self.key = (request.owner, request.request_id)  # what the request is known by
        self.host = host
        self.queueing = queueing
        self.generated_id = generated_id
        self.ruling: Ruling = None  # what `planning.rule` says, before anything is admitted
        self.window = None if window is None else check_window(window, request.lifetime)
        self.scope = None if request.lifetime is Lifetime.DETACHED else _scope(host)
        self.cwd = _directory(command, host)
        stdin = command.stdin
        self.stdin = STDIN_NULL if stdin is None else STDIN_OPEN if stdin == STDIN_OPEN else STDIN_BYTES
        self.pty = None if command.pty is None else command.pty.to_dict()
        self.env = program_environment(command, host.environ)
        self.secrets = secret_values(command.secrets, command.secret_env, self.env)
        if len(self.secrets) > MAX_SECRETS:
            problem = f"are more than {MAX_SECRETS}, values of secret variables included"
            raise invalid("secrets", problem, "pass large sets of secrets in a file or over stdin")
        self.shown_argv, self.shown_cwd = self._shown(command.argv, self.cwd)
        self.digests = request_digests(request, self.cwd, key)
        self.key_id = key_id(key)
        self._limits = _DEFAULT_LIMITS if request.limits is DEFAULT_LIMITS else request.limits.to_dict()
        self._completion = str(request.completion)
        # Names only; values are never stored.
        self._env_names = sorted({*command.env, *command.secret_env, *command.inherit_env})
        if self.secrets:
            self._check_stored()

    def _check_stored(self) -> None:
        """Raises ``INVALID_REQUEST`` for a secret in what is stored as it is."""
        request = self.request
        stored = {
            "request_id": [request.request_id],
            "owner": [request.owner],
            "labels": [*request.labels, *request.labels.values()],
            "env": self._env_names,
            "policy.filesystem": _granted(request),
        }
        for name, texts in stored.items():
            # All in one first: there may be many, and hardly ever is anything found.
            if secret_spans("\0".join(texts), self.secrets) and any(
                secret_spans(text, self.secrets) for text in texts
            ):
                raise invalid(name, "contains a secret value", "it would be stored; leave the secret out")

    def _shown(self, argv: Sequence[str], cwd: str) -> tuple[list[str], str]:
        """As they may be stored."""
        tokens = self.request.command.redact_tokens
        whole = "\0".join([*argv, cwd])
        if redact(whole, self.secrets, tokens=tokens) == whole:  # as nearly always: one look instead of many
            return list(argv), cwd
        *items, last = [redact(text, self.secrets, tokens=tokens) for text in (*argv, cwd)]
        return items, last

    def header(self, place: Place, directory_id: str, boot_id: str, now_ns: int) -> SegmentHeader:
        """The log's header: enough to rebuild the journal's row from it."""
        request = self.request
        detail: dict[str, object] = {
            "serial": place.serial,
            "request_id": request.request_id,
            "owner": request.owner,
            "digests": self.digests,
            "key_id": self.key_id,
            "argv": self.shown_argv,
            "cwd": self.shown_cwd,
            "labels": dict(request.labels),
            "limits": self._limits,
            "completion": self._completion,
            "env_names": self._env_names,
            "stdin": self.stdin,
            "pty": self.pty,
            "policy": None if request.policy is None else request.policy.to_dict(),
            "lifetime": str(request.lifetime),
            "nested_in": self.host.nested_in,
            "survives_unit_restart": self.host.survives_unit_restart,
            "priority": self.queueing.priority,
        }
        return SegmentHeader(
            directory_id, place.run_id, place.attempt, place.first_seq, 1, boot_id, now_ns, detail
        )

    def intent(self, place: Place, boot_id: str, now_ns: int, *, queued: bool = False) -> Intent:
        """What the journal commits before anything is dispatched."""
        request = self.request
        return Intent(
            serial=place.serial,
            run_id=place.run_id,
            shard=place.shard,
            owner=request.owner,
            request_id=request.request_id,
            argv=self.shown_argv,
            cwd=self.shown_cwd,
            limits=self._limits,
            completion=self._completion,
            digests=self.digests,
            key_id=self.key_id,
            boot_id=boot_id,
            now_ns=now_ns,
            labels=request.labels,
            env_names=self._env_names,
            nested_in=self.host.nested_in,
            survives_unit_restart=self.host.survives_unit_restart,
            attempt=place.attempt,
            first_seq=place.first_seq,
            state=RunState.QUEUED if queued else RunState.STARTING,
            priority=self.queueing.priority,
        )

    def spec_frame(self, place: Place, paths: RunPaths, *, queued: bool = False) -> bytes:
        """The first frame on the worker's channel; see `worker.spec.Spec`."""
        command = self.request.command
        given = command.stdin if isinstance(command.stdin, bytes) else b""
        message: dict[str, object] = {
            "run_id": place.run_id,
            "attempt": place.attempt,
            "runs_dir": paths.runs_dir,
            "shard": place.shard,
            "argv": list(command.argv),
            "cwd": self.cwd,
            "env": self.env,
            "umask": self.host.umask,
            "secrets": self.secrets,
            "shown_argv": self.shown_argv,
            "shown_cwd": self.shown_cwd,
            "completion": self._completion,
            **{name: self._limits[name] for name in WORKER_LIMITS},
            "priority": self.queueing.priority,
            "queued": queued,
            "stdin": self.stdin,
            "pty": self.pty,
            "plan": _message_of(self.ruling),
            "window": self.window,
            "host": None if self.scope is None else self.scope.to_dict(),
            "max_stdin_bytes": self.request.limits.max_stdin_bytes,
            "redact_tokens": command.redact_tokens,
        }
        return encode_frame(message, given)


def _directory(command: Command, host: Host) -> str:
    """Absolute and normal.  Raises ``INVALID_REQUEST``."""
    cwd = os.path.normpath(os.path.join(host.cwd, command.cwd)) if command.cwd else host.cwd
    if not cwd.startswith("/"):
        raise invalid("cwd", "is relative, and this process's own directory is gone", "give an absolute cwd")
    return cwd


def _scope(host: Host) -> ProcessIdentity:
    """Whose end is to be the run's.  Raises ``INVALID_REQUEST``."""
    if host.process is None:
        raise invalid(
            "lifetime",
            "cannot be scope: the process that asks cannot be watched from here",
            "it needs Linux 5.3 and a process that the supervisor can see; else choose 'detached'",
        )
    return host.process


def _message_of(ruling: Ruling) -> dict[str, object] | None:
    if ruling is None:
        return None
    from ...sandbox.plan import Plan  # most requests ask for no confinement

    return ruling.to_message() if isinstance(ruling, Plan) else None


def _granted(request: StartRequest) -> list[str]:
    grants = None if request.policy is None else request.policy.filesystem
    return [str(grant.path) for grant in grants or ()]


@lru_cache(maxsize=4)  # every start names it
def key_id(key: bytes) -> str:
    """Names a key without giving it away."""
    return field_digest(key, "key_id", b"")[:16]


def conflict(admission: Admission) -> SupervisorError:
    """``IDEMPOTENCY_CONFLICT``, naming the fields that differ and never their values."""
    row = admission.row
    fields = ", ".join(admission.differing)
    return SupervisorError(
        ErrorCode.IDEMPOTENCY_CONFLICT,
        f"request id {row.request_id} already stands for run {row.run_id}, which differs in: {fields}",
        phase=Phase.ADMIT,
        hint="use a new request id for different work, or send exactly the same request",
        details={"run_id": row.run_id, "fields": list(admission.differing)},
    )
