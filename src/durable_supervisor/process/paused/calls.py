"""All that a paused child does from its birth to its exec, as a table of system calls.

Pure: `process.paused.clone` puts such a table where a child can carry it out, which
goes from each call to the next as long as none fails.
"""

from __future__ import annotations

import os
import signal

from ..program import Program, Stdio
from . import failure

ANY = -(1 << 63)
_HIGHEST = (1 << 32) - 1  # descriptor, of close_range(2)
_SIG_SETMASK = 2
_F_SETFD = 2
_TIOCSCTTY = 0x540E
_SIGNALS = 64  # of the kernel, which counts from 1
_MASK_BYTES = _SIGNALS // 8
ZERO_BYTES = 32  # as many as the kernel's struct sigaction has


class Place:
    """Stands for a number or an address that is not known yet."""


SCRATCH = Place()  # of the one word that the child may write
ZEROS = Place()  # no signal as a mask; SIG_DFL without flags as an action
CWD, UMASK, PATH, ARGV, ENVIRONMENT = (Place() for _ in range(5))  # of the program: see `content`
Argument = int | Place
Content = int | bytes | tuple[bytes, ...]


class Call:
    """One system call; it has failed when its result is below ``least``, and ``step`` is what failed then."""

    __slots__ = ("arguments", "least", "name", "step")

    def __init__(self, name: str, *arguments: Argument, step: int = failure.PREPARE, least: int = 0) -> None:
        self.name = name
        self.arguments = arguments
        self.step = step
        self.least = least


def after_failure(pipe: int) -> list[Call]:
    """What the child does when a call has failed, which the scratch word says then."""
    return [
        Call("write", pipe, SCRATCH, failure.FAILURE.size, least=ANY),
        Call("exit_group", failure.NEVER_RELEASED, least=ANY),
    ]


def default_signals() -> list[Call]:
    """Every one of them: what is ignored stays ignored over exec (signal(7)), and until then a handler
    would run in memory that is not the child's own.
    """
    unchangeable = (signal.SIGKILL, signal.SIGSTOP)
    return [
        Call("rt_sigaction", signo, ZEROS, 0, _MASK_BYTES)
        for signo in range(1, _SIGNALS + 1)
        if signo not in unchangeable
    ]


def arrange(stdio: Stdio, gate: int, pipe: int) -> list[Call]:
    """A session of its own, and no descriptors but what it needs: nothing but numbers.

    The run log's lock belongs to an open file description that the child shares until it has closed its
    descriptors: that must be done before it waits at the gate.
    """
    return [Call("setsid"), *_take_stdio(stdio), *_close_all_but(*sorted((gate, pipe)))]


def until_exec(gate: int) -> list[Call]:
    """What follows, up to the exec: the same for every program."""
    return [
        Call("chdir", CWD, step=failure.CWD),
        Call("umask", UMASK),
        # Only the parent has the other end, and writes one byte or dies.  End-of-file reads as 0.
        Call("read", gate, SCRATCH, 1, least=1),
        Call("rt_sigprocmask", _SIG_SETMASK, ZEROS, 0, _MASK_BYTES),
        Call("execve", PATH, ARGV, ENVIRONMENT, step=failure.EXEC),
    ]


def content(program: Program) -> dict[Place, Content]:
    """What belongs in each place: a number as it is, bytes with a NUL behind them by their address.

    A tuple by that of a vector of such addresses, with a null pointer behind them, as execve(2) takes it.
    Raises ValueError for what no program can be given.
    """
    return {
        CWD: os.fsencode(program.cwd),
        UMASK: program.umask,
        PATH: os.fsencode(program.path),
        ARGV: _texts(program.argv),
        ENVIRONMENT: _environment(program),
    }


def _take_stdio(stdio: Stdio) -> list[Call]:
    calls = []
    for target, source in enumerate((stdio.stdin, stdio.stdout, stdio.stderr)):
        if source == target:  # which dup3(2) refuses
            calls.append(Call("fcntl", target, _F_SETFD, 0))
        else:
            calls.append(Call("dup3", source, target, 0))
    if stdio.terminal:
        calls.append(Call("ioctl", 0, _TIOCSCTTY, 0))  # of the session that it leads now
    return calls


def _close_all_but(first: int, second: int) -> list[Call]:
    """Those two are closed by the exec."""
    gaps = ((3, first - 1), (first + 1, second - 1), (second + 1, _HIGHEST))
    return [Call("close_range", low, high, 0) for low, high in gaps if low <= high]


def _environment(program: Program) -> tuple[bytes, ...]:
    for name in program.env:
        if not name or "=" in name:
            raise ValueError("illegal environment variable name")
    return _texts([f"{name}={value}" for name, value in program.env.items()])


def _texts(texts: list[str]) -> tuple[bytes, ...]:
    """Encoded, all in one."""
    encoded = os.fsencode("\0".join(texts)).split(b"\0") if texts else []
    if len(encoded) != len(texts):
        raise ValueError("embedded null byte")
    return tuple(encoded)
