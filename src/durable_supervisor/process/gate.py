"""Fork the program paused, so that nothing runs before it is recorded.

The child waits for one byte on a pipe before execve(2).  Its parent records
who the child is, logs the release, and only then writes that byte.  If the parent
dies first the pipe reports end-of-file and the child leaves without exec.  A
second pipe, closed by a successful exec, brings back the reason of a failed one.

A program that is to be confined is confined before it waits; a third pipe brings back
what came of it, which the parent has read before it can record anything as released.
"""

from __future__ import annotations

import errno
import fcntl
import os
import select
import signal
import struct
import time
from collections.abc import Callable

from .failpoints import failpoint
from .program import ConfinementRefused, StartFailure

_FAILURE = struct.Struct("<iB")
_STEPS = ("cwd", "exec", "prepare", "confine")
_CWD, _EXEC, _PREPARE, _CONFINE = range(len(_STEPS))
_NEVER_RELEASED = 127
CONFINE_SECONDS = 30.0  # a granted file system may not answer: nobody serves a stop or a deadline meanwhile
# A worker has no descriptor as high as this when it forks: it has just begun.  (One that waited in the
# queue may have, of whoever is connected to it: they close at exec, and none of them is a lock.)
_ABOVE = 128
# What workers ignore: whatever a program may send its parent by mistake and would end it.  (Real-time
# signals would too, but nobody sends those by mistake, and each costs every start a microsecond or two.)
STRAY_SIGNALS = (
    signal.SIGHUP,
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGTERM,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGPIPE,
    signal.SIGALRM,
    signal.SIGVTALRM,
    signal.SIGPROF,
    signal.SIGIO,
    signal.SIGPWR,
    signal.SIGXCPU,
    signal.SIGXFSZ,
)


class Stdio:
    """The descriptors the program gets as 0, 1 and 2.  ``terminal``: they are one, of its session."""

    __slots__ = ("stderr", "stdin", "stdout", "terminal")

    def __init__(self, stdin: int, stdout: int, stderr: int, *, terminal: bool = False) -> None:
        self.stdin = stdin
        self.stdout = stdout
        self.stderr = stderr
        self.terminal = terminal


class Program:
    """What to execute: ``path`` is resolved, ``argv[0]`` stays as the caller gave it."""

    __slots__ = ("argv", "cwd", "env", "path", "umask")

    def __init__(self, path: str, argv: list[str], cwd: str, env: dict[str, str], umask: int) -> None:
        self.path = path
        self.argv = argv
        self.cwd = cwd
        self.env = env
        self.umask = umask


class PausedProgram:
    """A forked child that has not executed anything yet.  ``report`` is what it says of its confinement."""

    def __init__(self, pid: int, gate: int, failure: int, path: str) -> None:
        self.pid = pid
        self.report = b""
        self._gate = gate
        self._failure = failure
        self._path = path

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
            os.waitid(os.P_PID, self.pid, os.WEXITED)
            raise failure

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
            os.waitid(os.P_PID, self.pid, os.WEXITED)
            raise failure or StartFailure(errno.EIO, "confine", self._path)

    def _read_failure(self) -> StartFailure | None:
        """What made it leave; None once it has executed the program, or was killed."""
        report = os.read(self._failure, _FAILURE.size)
        os.close(self._failure)
        if len(report) != _FAILURE.size:
            return None
        code, step = _FAILURE.unpack(report)
        return StartFailure(code, _STEPS[step], self._path)

    def abandon(self) -> None:
        """Never release it: the closed pipe makes it leave without exec."""
        os.close(self._gate)
        os.close(self._failure)

    def discard(self) -> None:
        """Abandon it, and wait until it is gone."""
        self.abandon()
        os.waitid(os.P_PID, self.pid, os.WEXITED)


def fork_paused(program: Program, stdio: Stdio, confine: Callable[[], bytes] | None = None) -> PausedProgram:
    """Fork the child that waits at the gate.  The caller must be single-threaded.

    ``confine`` is called in the child when all else is prepared, and answers a report that is not empty.
    Raises StartFailure with step ``fork`` when the kernel refuses a process, and when there is no report.
    """
    pipes = [os.pipe2(os.O_CLOEXEC) for _ in range(2 if confine is None else 3)]
    try:
        pid = os.fork()
    except OSError as error:
        for fd in (fd for pipe in pipes for fd in pipe):
            os.close(fd)
        raise StartFailure(error.errno or errno.EAGAIN, "fork", program.path) from None
    (gate_read, gate_write), (failure_read, failure_write), *reports = pipes
    if pid == 0:
        _child(program, stdio, [failure_write, gate_read, *(write for _, write in reports)], confine)
    failpoint("worker.forked")
    os.close(gate_read)
    os.close(failure_write)
    paused = PausedProgram(pid, gate_write, failure_read, program.path)
    for report_read, report_write in reports:
        os.close(report_write)
        paused.receive_report(report_read)
    return paused


def _child(program: Program, stdio: Stdio, pipes: list[int], confine: Callable[[], bytes] | None) -> None:
    """Never returns.  Holds no lock of the parent by the time it waits at the gate."""
    failure = pipes[0]
    step = _PREPARE
    try:
        os.setsid()
        _default_signals()
        failure, gate, *reports = _arrange_descriptors(stdio, pipes)
        if stdio.terminal:
            _take_terminal()
        step = _CWD
        os.chdir(program.cwd)
        os.umask(program.umask)
        if confine is not None:
            step = _CONFINE
            _report(confine(), reports[0])
        failpoint("program.paused")
        if os.read(gate, 1) != b"\1":
            os._exit(_NEVER_RELEASED)
        failpoint("program.released")
        step = _EXEC
        os.execve(program.path, program.argv, program.env)
    except OSError as error:
        os.write(failure, _FAILURE.pack(error.errno or errno.EIO, step))
    except MemoryError:
        os.write(failure, _FAILURE.pack(errno.ENOMEM, step))
    except BaseException:  # noqa: BLE001  nothing may escape into a second copy of the worker
        os.write(failure, _FAILURE.pack(errno.EINVAL, step))
    finally:
        os._exit(_NEVER_RELEASED)


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


def _report(report: bytes, pipe: int) -> None:
    with open(pipe, "wb") as writer:
        writer.write(report)


def _default_signals() -> None:
    """An ignored signal stays ignored over exec, and so does the mask (signal(7)); handlers do not."""
    for signo in STRAY_SIGNALS:
        signal.signal(signo, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _take_terminal() -> None:
    """Make stdin the controlling terminal of the session that we lead (TIOCSCTTY)."""
    import termios  # most programs get none

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def _arrange_descriptors(stdio: Stdio, pipes: list[int]) -> list[int]:
    """0, 1, 2 are the program's; the pipes follow from 3 on; everything else is closed.

    The run log's lock belongs to an open file description that this child shares
    until here: it must be gone before the gate is waited on.
    """
    for target, source in enumerate((stdio.stdin, stdio.stdout, stdio.stderr)):
        os.dup2(source, target, inheritable=True)
    end = 3 + len(pipes)
    spare = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, end) for fd in pipes]  # they may be in 3..end themselves
    for target, source in enumerate(spare, 3):
        os.dup2(source, target, inheritable=False)
    os.closerange(end, _ABOVE)
    return list(range(3, end))
