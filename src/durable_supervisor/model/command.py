"""What to run, and within which bounds."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal

from .errors import invalid
from .secrets import MIN_SECRET_BYTES
from .value import Value

if TYPE_CHECKING:
    from .terminal import Terminal

MIB = 1024 * 1024
DEFAULT_GRACE = 10.0
DEFAULT_OUTPUT_BYTES = 64 * MIB
MAX_SECONDS = 10 * 365 * 86400.0
MAX_OUTPUT_BYTES = 1 << 50
MAX_LABELS = 64
MAX_CPUS = 4096
STDIN_OPEN: Final = "open"  # keep the program's stdin open for later `write_stdin`

# The dynamic loader runs these before the program's own first instruction (ld.so(8)).
LOADER_VARIABLES = frozenset({"LD_PRELOAD", "LD_AUDIT"})
LOADER_PREFIXES = ("DYLD_",)


class OnLimit(StrEnum):
    TRUNCATE = "truncate"  # keep the head and the tail, count what is dropped
    TERMINATE = "terminate"  # stop the run: stdout_limit_exceeded / stderr_limit_exceeded


class Completion(StrEnum):
    LEADER = "leader"  # over when the leader exits; what is left of the tree is ended
    TREE = "tree"  # over when the whole tree is gone by itself


# In a JSON form only where they are given: so a request of an older release has the digest it had then.
OPTIONAL = (
    "max_stdin_bytes",
    "max_memory_bytes",
    "max_cpu_seconds",
    "max_cpus",
    "max_processes",
    "max_open_files",
    "max_file_bytes",
)
CONFINING = OPTIONAL[1:]  # all but the first are for the kernel to hold
# Whole numbers, with the least that a program can be started with (0, 1, 2 are open, its image is mapped).
LEAST = {
    "max_stdin_bytes": 0,
    "max_memory_bytes": MIB,
    "max_processes": 1,
    "max_open_files": 3,
    "max_file_bytes": 0,
}
_NO_VARIABLES: Mapping[str, str] = MappingProxyType({})
_SECRET = frozenset({"secret_env", "stdin", "secrets"})  # fields of `Command` whose values may be
# What `Command` takes as well, for calls that need no other limits.
SUGAR = ("timeout", "idle_timeout", "max_stdin_bytes", "max_stdout_bytes", "max_stderr_bytes")


class Limits(Value):
    """Bounds of one run.  Times are seconds, sizes are bytes; None means unbounded.

    ``timeout`` is wall time since release and counts while the machine sleeps;
    ``idle_timeout`` is time without output and does not.  ``grace`` is how long
    the tree has between TERM and KILL.  ``max_stdin_bytes`` is how much may be written to its
    stdin in all.

    The others are for the whole tree where the kernel can count it so, else for each of
    its processes: the run's enforcement report says which.  ``max_cpu_seconds`` is time on a
    processor, ``max_cpus`` a share: 0.5 is half of one.  Memory includes the page cache that the
    tree causes.
    """

    timeout: float | None = None
    idle_timeout: float | None = None
    grace: float = DEFAULT_GRACE
    max_stdout_bytes: int = DEFAULT_OUTPUT_BYTES
    max_stderr_bytes: int = DEFAULT_OUTPUT_BYTES
    on_limit: OnLimit = OnLimit.TRUNCATE
    max_stdin_bytes: int | None = None
    max_memory_bytes: int | None = None
    max_cpu_seconds: float | None = None
    max_cpus: float | None = None
    max_processes: int | None = None
    max_open_files: int | None = None
    max_file_bytes: int | None = None

    def __post_init__(self) -> None:
        for name in ("timeout", "idle_timeout", "max_cpu_seconds"):
            value = getattr(self, name)
            if value is not None:
                _seconds(f"limits.{name}", value, above_zero=True)
        _seconds("limits.grace", self.grace, above_zero=False)
        for name, least in LEAST.items():
            if getattr(self, name) is not None:
                _whole(f"limits.{name}", getattr(self, name), least)
        if self.max_cpus is not None:
            _share("limits.max_cpus", self.max_cpus)
        for name in ("max_stdout_bytes", "max_stderr_bytes"):
            _size(f"limits.{name}", getattr(self, name))
        for name in ("timeout", "idle_timeout", "grace", "max_cpu_seconds", "max_cpus"):
            value = getattr(self, name)
            if value is not None:  # 5 and 5.0, 0.0 and -0.0 are one request, whichever its language writes
                object.__setattr__(self, name, float(value) + 0.0)
        object.__setattr__(self, "on_limit", _on_limit(self.on_limit))

    def to_dict(self) -> dict[str, object]:
        """JSON form; the keys are the field names, those of `OPTIONAL` only where they are given."""
        return {
            "timeout": self.timeout,
            "idle_timeout": self.idle_timeout,
            "grace": self.grace,
            "max_stdout_bytes": self.max_stdout_bytes,
            "max_stderr_bytes": self.max_stderr_bytes,
            "on_limit": self.on_limit.value,
            **{name: value for name in OPTIONAL if (value := getattr(self, name)) is not None},
        }

    @property
    def confining(self) -> dict[str, int | float]:
        """Those that the kernel is asked to hold, by field name; usually none."""
        return {name: value for name in CONFINING if (value := getattr(self, name)) is not None}


class Command(Value):
    """One invocation, without a shell.

    ``argv[0]`` is looked up on the program's own PATH.  The program's
    environment is a small base (``docs/architecture.md`` lists it), the host's
    variables named in ``inherit_env``, then ``env``, then ``secret_env``.  ``stdin`` is None
    (null), bytes, or ``"open"``.  ``secrets`` are further values to keep off the disk.

    With ``pty`` the program has a terminal instead of pipes: all that it prints is stdout, and
    its stdin can always be written to; given bytes are followed by the terminal's end-of-file
    character.  ``TERM`` is set, unless ``env`` or ``inherit_env`` has one.

    The last five are limits, for a call without `Limits` of its own.  ``redact_tokens``: also
    keep off the disk what looks like a credential (``docs/redaction.md`` lists the shapes).

    Raises SupervisorError ``INVALID_REQUEST`` naming the field at fault.
    """

    argv: Sequence[str]
    cwd: str | os.PathLike[str] | None = None
    env: Mapping[str, str] = _NO_VARIABLES
    secret_env: Mapping[str, str] = _NO_VARIABLES
    inherit_env: Sequence[str] = ()
    stdin: bytes | Literal["open"] | None = None
    secrets: Sequence[str] = ()
    pty: Terminal | None = None
    redact_tokens: bool = True
    timeout: float | None = None
    idle_timeout: float | None = None
    max_stdin_bytes: int | None = None
    max_stdout_bytes: int | None = None
    max_stderr_bytes: int | None = None

    def __post_init__(self) -> None:
        fields, defaults = self.__dict__, self._defaults
        for name, form in _FORMS.items():
            # A default needs no check: each call costs a start that comes alone, whose caches are cold.
            if fields[name] is not defaults[name]:
                fields[name] = form(fields[name])
        for name in ("env", "secret_env"):
            if fields[name] is _NO_VARIABLES:
                fields[name] = {}  # as one that was given: the default, a read-only view, cannot be pickled
        for name, value in self.secret_env.items():
            if name in self.env:
                raise invalid("secret_env", f"{name} is also in env", "give each variable once")
            _secret(f"secret_env[{name}]", value)

    def __repr__(self) -> str:
        """Variables by name only: logs and tracebacks show this."""
        shown = {name: getattr(self, name) for name in self.FIELDS if name not in _SECRET}
        shown["env"] = sorted(self.env)
        return f"Command({', '.join(f'{name}={value!r}' for name, value in shown.items())})"

    @property
    def own_limits(self) -> dict[str, int | float]:
        """The limits that were given here, by field name."""
        fields = self.__dict__
        return {name: fields[name] for name in SUGAR if fields[name] is not None}

    def limits_with(self, limits: Limits | None, otherwise: Limits | None = None) -> Limits:
        """The limits that count: these here, or ``limits``; where neither is given, ``otherwise``.

        Raises ``INVALID_REQUEST`` for both at once, and for one that is out of its range.
        """
        own = self.own_limits
        if own and limits is not None:
            name = next(iter(own))
            raise invalid(name, "is given in the command, beside limits", f"say Limits({name}=...) there")
        if limits is not None:
            return limits
        base = otherwise if otherwise is not None else DEFAULT_LIMITS
        return base.replace(**own) if own else base


def _seconds(name: str, value: object, *, above_zero: bool) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise invalid(name, "must be a finite number of seconds")
    if isinstance(value, float) and not math.isfinite(value):  # a huge int would overflow isfinite
        raise invalid(name, "must be a finite number of seconds")
    if value < 0 or (above_zero and value == 0) or value > MAX_SECONDS:
        raise invalid(name, "must be positive and at most ten years" if above_zero else "must be 0 or more")


def check_timeout(name: str, value: float | None) -> None:
    """None, or a finite number of seconds from 0 on; else ``INVALID_REQUEST``."""
    if value is not None:
        _seconds(name, value, above_zero=False)


def _size(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise invalid(name, "must be a whole number of bytes")
    if not 0 < value <= MAX_OUTPUT_BYTES:
        raise invalid(name, "must be at least 1 byte and at most 1 PiB")


def _whole(name: str, value: object, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise invalid(name, "must be a whole number")
    if not least <= value <= MAX_OUTPUT_BYTES:
        shown = f"1 MiB ({MIB} bytes)" if least == MIB else str(least)
        most = "1 PiB" if name.endswith("_bytes") else str(MAX_OUTPUT_BYTES)
        raise invalid(name, f"must be at least {shown} and at most {most}")


def _share(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise invalid(name, "must be a number of processors")
    if not 0.01 <= value <= MAX_CPUS:
        raise invalid(name, f"must be from 0.01 to {MAX_CPUS} processors")


def completion_of(value: object) -> Completion:
    """``Completion``, or its word; anything else is an ``INVALID_REQUEST``."""
    if isinstance(value, Completion):
        return value
    try:
        return Completion(str(value))
    except ValueError:
        raise invalid("completion", "must be 'leader' or 'tree'") from None


def _on_limit(value: object) -> OnLimit:
    try:
        return OnLimit(str(value))
    except ValueError:
        raise invalid("limits.on_limit", "must be 'truncate' or 'terminate'") from None


def _argv(argv: object) -> tuple[str, ...]:
    if type(argv) is not list and (isinstance(argv, str | bytes) or not isinstance(argv, Sequence)):
        raise invalid("argv", "must be a list of strings, not one string", "argv=['rg', 'TODO', 'src']")
    if not argv:
        raise invalid("argv", "is empty", "name the program to run")
    items: list[str] = []
    for item in argv:
        text = item if type(item) is str else _text_of(item)
        if not isinstance(text, str):
            raise invalid(f"argv[{len(items)}]", "is not a string")
        if "\0" in text or not text.isascii():
            _encodable(f"argv[{len(items)}]", text)
        items.append(text)
    if not items[0]:
        raise invalid("argv[0]", "is empty", "name the program to run")
    return tuple(items)


def _text_of(item: Any) -> Any:
    return os.fsdecode(item) if isinstance(item, bytes | os.PathLike) else item


def _cwd(cwd: object) -> str:
    if not isinstance(cwd, str | os.PathLike):
        raise invalid("cwd", "is not a path")
    path = os.fsdecode(cwd)
    if not path:
        raise invalid("cwd", "is empty")
    _encodable("cwd", path)
    return path


def _encodable(where: str, text: str) -> None:
    """Can the kernel be given this?  Bytes that are no UTF-8 come as \\udc80..\\udcff (PEP 383)."""
    if "\0" in text:
        raise invalid(where, "contains a NUL byte")
    if text.isascii():
        return  # every encoding has these
    try:
        os.fsencode(text)
    except UnicodeEncodeError:
        raise invalid(where, "has a character that this system's encoding cannot express") from None


def _variable_name(where: str, name: object) -> str:
    if not isinstance(name, str) or not name:
        raise invalid(where, "has an empty or non-string name")
    if "=" in name:
        raise invalid(where, "has a name with '=' in it")
    _encodable(where, name)
    if name in LOADER_VARIABLES or name.startswith(LOADER_PREFIXES):
        raise invalid(f"{where}[{name}]", "would make the loader run other code before the program")
    return name


def _environment(where: str, env: object) -> dict[str, str]:
    if not isinstance(env, Mapping):
        raise invalid(where, "must be a mapping of names to values")
    checked = {}
    for name, value in env.items():
        name = _variable_name(where, name)
        if not isinstance(value, str):
            raise invalid(f"{where}[{name}]", "is not a string")
        _encodable(f"{where}[{name}]", value)
        checked[name] = value
    return checked


def _inherit(names: object) -> tuple[str, ...]:
    if isinstance(names, str) or not isinstance(names, Sequence):
        raise invalid("inherit_env", "must be a list of variable names")
    return tuple(sorted({_variable_name("inherit_env", name) for name in names}))


def _secrets(values: object) -> tuple[str, ...]:
    if isinstance(values, str) or not isinstance(values, Sequence):
        raise invalid("secrets", "must be a list of strings")
    for value in values:
        _secret("secrets", value)
    return tuple(values)


def _stdin(stdin: object) -> bytes | Literal["open"]:
    if isinstance(stdin, bytes):
        return stdin
    if stdin != STDIN_OPEN:
        raise invalid("stdin", "must be None, bytes or 'open'")
    return STDIN_OPEN


def _pty(pty: object) -> Terminal:
    from .terminal import check_terminal

    return check_terminal(pty)


def _redact_tokens(value: object) -> bool:
    if not isinstance(value, bool):
        raise invalid("redact_tokens", "must be true or false")
    return value


def _secret(where: str, value: object) -> None:
    if not isinstance(value, str):
        raise invalid(where, "is not a string")
    _encodable(where, value)
    if len(value.encode("utf-8", "surrogateescape")) < MIN_SECRET_BYTES:
        raise invalid(
            where,
            f"is shorter than {MIN_SECRET_BYTES} bytes, too short to be redacted safely",
            "use a longer secret, or pass it as an ordinary variable",
        )


# By field of `Command`: what puts it in its final form, or raises.
_FORMS: Mapping[str, Callable[[Any], Any]] = {
    "argv": _argv,
    "cwd": _cwd,
    "env": partial(_environment, "env"),
    "secret_env": partial(_environment, "secret_env"),
    "inherit_env": _inherit,
    "secrets": _secrets,
    "stdin": _stdin,
    "pty": _pty,
    "redact_tokens": _redact_tokens,
}

DEFAULT_LIMITS = Limits()  # nobody can change them, so they serve all
