"""A paused child that shares its parent's memory until its exec, as a child of posix_spawn(3) does.

With it a run takes 1.9 ms less of CPU (of 10 in worker and program) and 600 faults less (of 1,580) than
with a copy, as of `process.paused.fork`.

No Python runs in it: `process.paused.code` goes through the table of `process.paused.calls`.
All signals are blocked from before its birth until just before its exec, so that no handler of
Python's runs in it either.  Of the memory it changes nothing but one word of its table.
"""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import struct

from ..machine_code import PAGE_BYTES, load, no_signals
from ..program import Program, Stdio
from ..shortage import is_shortage
from .calls import after_failure, arrange, content, default_signals, until_exec
from .code import MACHINES, Machine
from .failure import NEVER_RELEASED, PREPARE
from .memory import Memory, Template

_CLONE_VM = 0x100
_FLAGS = _CLONE_VM | int(signal.SIGCHLD)
_ZEROS = PAGE_BYTES // 2  # behind the code in its page there are only zeros
_Start = ctypes.CFUNCTYPE(ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p)

# What children may still be reading.  Whatever becomes of who knows of a child, it is not freed before.
_in_use: set[Memory] = set()


class Cloner:
    """Starts such children.  Made by `prepare`, and good in everything that is forked from its maker."""

    def __init__(self, machine: Machine, page: int) -> None:
        self._start = _Start(page)
        self._numbers = machine.numbers
        self._zeros = page + _ZEROS
        self._arranged_for: tuple[int, ...] = ()
        self._template = Template([], self._numbers, self._zeros)

    def start(self, program: Program, stdio: Stdio, gate: int, failure: int) -> tuple[int, Memory]:
        """The pid of a child that waits at the gate, and what to give to `let_go` when it has.

        Raises OSError; ValueError for a text that cannot be given to any program.
        """
        memory = self.lay_out(program, stdio, gate, failure)
        return self._clone(memory), memory

    def lay_out(self, program: Program, stdio: Stdio, gate: int, failure: int) -> Memory:
        """All that comes before there is a child.  Raises ValueError."""
        descriptors = (stdio.stdin, stdio.stdout, stdio.stderr, stdio.terminal, gate, failure)
        if descriptors != self._arranged_for:  # a worker's next run has the same, mostly
            arranged = [*default_signals(), *arrange(stdio, gate, failure)]
            calls = [*after_failure(failure), *arranged, *until_exec(gate)]
            self._template = Template(calls, self._numbers, self._zeros)
            self._arranged_for = descriptors
        return Memory(self._template, content(program))

    def try_out(self) -> None:
        """Have a child that finds its gate closed.  Raises OSError where it doesn't get as far as that.

        Nothing else tells beforehand what an emulator or a system call filter makes of such a child.
        """
        null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)  # a gate that nobody will open
        try:
            pid, memory = self.start(Program("/", [""], "/", {}, 0), Stdio(null, null, null), null, null)
        finally:
            os.close(null)
        status = os.waitid(os.P_PID, pid, os.WEXITED)
        let_go(memory)
        code, step = memory.failure()
        left = status is not None and (status.si_code, status.si_status) == (os.CLD_EXITED, NEVER_RELEASED)
        if not left or code != 0 or step != PREPARE:
            raise OSError(code or errno.ENOSYS, os.strerror(code or errno.ENOSYS))

    def _clone(self, memory: Memory) -> int:
        _in_use.add(memory)
        with no_signals():
            pid = int(self._start(_FLAGS, memory.stack, memory.table))
        if pid < 0:
            let_go(memory)
            raise OSError(-pid, os.strerror(-pid))
        return pid


def let_go(memory: Memory) -> None:
    """Its child is known to have executed the program, or to be gone."""
    _in_use.discard(memory)


def prepare() -> Cloner | str:
    """What starts such children, or why there can be none here.  A page of code stays mapped for good.

    Raises OSError when we are short of something: that says nothing about what can be had.
    """
    machine = MACHINES.get(os.uname().machine)
    if machine is None or struct.calcsize("P") != 8:
        return "there is no code for such a process"
    try:
        cloner = Cloner(machine, load(machine.code))
        cloner.try_out()
    except OSError as error:
        if is_shortage(error):
            raise
        return error.strerror or str(error)
    return cloner
