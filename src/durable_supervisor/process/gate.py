"""Make the program's process paused, so that nothing runs before it is recorded.

The child waits for one byte on a pipe before execve(2).  Its parent records
who the child is, logs the release, and only then writes that byte.  If the parent
dies first the pipe reports end-of-file and the child leaves without exec.  A
second pipe, closed by a successful exec, brings back the reason of a failed one.

A program that is to be confined is confined before it waits; a third pipe brings back
what came of it, which the parent has read before it can record anything as released.

Such a child comes to be in either of two ways, between which nothing else differs.  By
`process.paused.clone` it shares its parent's memory until its exec, as one of posix_spawn(3)
does: the cheap way, wherever it can be had.  By `process.paused.fork` it is a copy of its parent.
"""

from __future__ import annotations

import errno
import os
import select
import signal
import time
from collections.abc import Callable

from .failpoints import failpoint, is_armed
from .paused import clone, fork
from .paused.clone import Cloner
from .paused.failure import FAILURE, STEPS
from .paused.memory import Memory
from .program import ConfinementRefused, Program, StartFailure, Stdio

CONFINE_SECONDS = 30.0  # a granted file system may not answer: nobody serves a stop or a deadline meanwhile
_NO_PIPES = (5, 6)  # gate and failure of a rehearsal: numbers like those of a start
_cloner: Cloner | str | None = None  # once there was need of one


class PausedProgram:
    """A child that has not executed anything yet.  ``report`` is what it says of its confinement."""

    def __init__(self, pid: int, gate: int, failure: int, path: str, memory: Memory | None) -> None:
        self.pid = pid
        self.report = b""
        self._gate = gate
        self._failure = failure
        self._path = path
        self._memory = memory  # of ours, which it reads until its exec

    def release(self) -> None:
        """Let it exec, and wait until it has.  Raises StartFailure when exec was refused."""
        try:
            os.write(self._gate, b"\1")
        except BrokenPipeError:
            pass  # killed while paused: waitid will tell
        failpoint("worker.gate_open")
        os.close(self._gate)
        failure = self._read_failure()
        if failure is not None:
            self._wait()
            raise failure
        self._let_go()

    def receive_report(self, pipe: int) -> None:
        """Wait until it is confined.  Raises StartFailure when it cannot say so: it is gone, or dying."""
        report = _read_within(CONFINE_SECONDS, pipe)
        os.close(pipe)
        if report is None:
            os.kill(self.pid, signal.SIGKILL)
            self.abandon()  # and not waited for: the kernel may never get it out of that file system
            reason = f"set-up took longer than {CONFINE_SECONDS:g} s: does a granted file system not answer?"
            raise ConfinementRefused("files", reason, self._path)
        self.report = report
        if not report:
            os.close(self._gate)
            failure = self._read_failure()
            self._wait()
            raise failure or StartFailure(errno.EIO, "confine", self._path)

    def abandon(self) -> None:
        """Never release it: the closed pipe makes it leave without exec."""
        os.close(self._gate)
        os.close(self._failure)

    def discard(self) -> None:
        """Abandon it, and wait until it is gone."""
        self.abandon()
        self._wait()

    def forget(self) -> None:
        """It was never released, and has been reaped."""
        self.abandon()
        self._let_go()

    def _read_failure(self) -> StartFailure | None:
        """What made it leave; None once it has executed the program, or was killed."""
        report = os.read(self._failure, FAILURE.size)
        os.close(self._failure)
        if len(report) != FAILURE.size:
            return None
        code, step = FAILURE.unpack(report)
        return StartFailure(code, STEPS[step], self._path)

    def _wait(self) -> None:
        os.waitid(os.P_PID, self.pid, os.WEXITED)
        self._let_go()

    def _let_go(self) -> None:
        """It is proven to have executed the program, or to be gone."""
        if self._memory is not None:
            clone.let_go(self._memory)
            self._memory = None


def fork_paused(program: Program, stdio: Stdio, confine: Callable[[], bytes] | None = None) -> PausedProgram:
    """Make the child that waits at the gate.  The caller is single-threaded, and has descriptors 0 to 2.

    ``confine`` is called in the child when all else is prepared, and answers a report that is not empty.
    Raises StartFailure with step ``fork`` when the kernel refuses a process, and when there is no report.
    """
    pipes = [os.pipe2(os.O_CLOEXEC) for _ in range(2 if confine is None else 3)]
    (gate_read, gate_write), (failure_read, failure_write), *reports = pipes
    ends = [failure_write, gate_read, *(write for _, write in reports)]
    try:
        pid, memory = _start(program, stdio, ends, confine)
    except StartFailure:
        for fd in (fd for pipe in pipes for fd in pipe):
            os.close(fd)
        raise
    failpoint("worker.forked")
    os.close(gate_read)
    os.close(failure_write)
    paused = PausedProgram(pid, gate_write, failure_read, program.path, memory)
    for report_read, report_write in reports:
        os.close(report_write)
        paused.receive_report(report_read)
    return paused


def cloner(confine: Callable[[], bytes] | None = None) -> Cloner | str:
    """By what the child shares our memory; or, in words, what makes it a copy instead.

    Found out by the first call, at less than the cost of a copy; what is forked afterwards has it already.
    """
    global _cloner
    if confine is not None:
        return "Python confines it"
    if any(map(is_armed, fork.POINTS)):
        return "a test stops it where Python runs in it"
    if _cloner is None:
        try:
            _cloner = clone.prepare()
        except OSError as error:
            return f"just now: {error.strerror}"
    return _cloner


def rehearse(program: Program, stdio: Stdio) -> None:
    """Go through what comes before there is a child."""
    found = cloner()
    if not isinstance(found, str):
        found.lay_out(program, stdio, *_NO_PIPES)


def _start(
    program: Program, stdio: Stdio, ends: list[int], confine: Callable[[], bytes] | None
) -> tuple[int, Memory | None]:
    try:
        found = cloner(confine)
        if isinstance(found, str):
            return fork.start(program, stdio, ends, confine), None
        failure, gate = ends
        return found.start(program, stdio, gate, failure)
    except ValueError:
        raise StartFailure(errno.EINVAL, "exec", program.path) from None
    except MemoryError:
        raise StartFailure(errno.ENOMEM, "fork", program.path) from None
    except OSError as error:
        raise StartFailure(error.errno or errno.EAGAIN, "fork", program.path) from None


def _read_within(seconds: float, pipe: int) -> bytes | None:
    """All that comes up to its end; None where that takes longer."""
    deadline = time.monotonic() + seconds
    poll = select.poll()
    poll.register(pipe, select.POLLIN)
    read = bytearray()
    while poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
        piece = os.read(pipe, 65536)
        if not piece:
            return bytes(read)
        read += piece
    return None
