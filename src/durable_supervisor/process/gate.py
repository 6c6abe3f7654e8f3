"""Fork the program paused, so that nothing runs before it is recorded.

The child waits for one byte on a pipe before execve(2).  Its parent records
who the child is, logs the release, and only then writes that byte.  If the parent
dies first the pipe reports end-of-file and the child leaves without exec.  A
second pipe, closed by a successful exec, brings back the reason of a failed one.
"""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import struct

from .failpoints import failpoint
from .program import StartFailure

_FAILURE = struct.Struct("<iB")
_STEPS = ("cwd", "exec", "prepare")
_NEVER_RELEASED = 127
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
    """A forked child that has not executed anything yet."""

    def __init__(self, pid: int, gate: int, failure: int, path: str) -> None:
        self.pid = pid
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
        report = os.read(self._failure, _FAILURE.size)
        os.close(self._failure)
        if len(report) == _FAILURE.size:
            os.waitid(os.P_PID, self.pid, os.WEXITED)
            code, step = _FAILURE.unpack(report)
            raise StartFailure(code, _STEPS[step], self._path)

    def abandon(self) -> None:
        """Never release it: the closed pipe makes it leave without exec."""
        os.close(self._gate)
        os.close(self._failure)


def fork_paused(program: Program, stdio: Stdio) -> PausedProgram:
    """Fork the child that waits at the gate.  The caller must be single-threaded.

    Raises StartFailure with step ``fork`` when the kernel refuses a process.
    """
    gate_read, gate_write = os.pipe2(os.O_CLOEXEC)
    failure_read, failure_write = os.pipe2(os.O_CLOEXEC)
    try:
        pid = os.fork()
    except OSError as error:
        for fd in (gate_read, gate_write, failure_read, failure_write):
            os.close(fd)
        raise StartFailure(error.errno or errno.EAGAIN, "fork", program.path) from None
    if pid == 0:
        _child(program, stdio, gate_read, failure_write)
    failpoint("worker.forked")
    os.close(gate_read)
    os.close(failure_write)
    return PausedProgram(pid, gate_write, failure_read, program.path)


def _child(program: Program, stdio: Stdio, gate: int, failure: int) -> None:
    """Never returns.  Holds no lock of the parent by the time it waits at the gate."""
    step = 2
    try:
        os.setsid()
        _default_signals()
        gate, failure = _arrange_descriptors(stdio, gate, failure)
        if stdio.terminal:
            _take_terminal()
        step = 0
        os.chdir(program.cwd)
        os.umask(program.umask)
        failpoint("program.paused")
        if os.read(gate, 1) != b"\1":
            os._exit(_NEVER_RELEASED)
        failpoint("program.released")
        step = 1
        os.execve(program.path, program.argv, program.env)
    except OSError as error:
        os.write(failure, _FAILURE.pack(error.errno or errno.EIO, step))
    except BaseException:  # noqa: BLE001  nothing may escape into a second copy of the worker
        os.write(failure, _FAILURE.pack(errno.EINVAL, step))
    finally:
        os._exit(_NEVER_RELEASED)


def _default_signals() -> None:
    """An ignored signal stays ignored over exec, and so does the mask (signal(7)); handlers do not."""
    for signo in STRAY_SIGNALS:
        signal.signal(signo, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _take_terminal() -> None:
    """Make stdin the controlling terminal of the session that we lead (TIOCSCTTY)."""
    import termios  # most programs get none

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def _arrange_descriptors(stdio: Stdio, gate: int, failure: int) -> tuple[int, int]:
    """0, 1, 2 are the program's; everything else but gate and failure is closed.

    The run log's lock belongs to an open file description that this child shares
    until here: it must be gone before the gate is waited on.
    """
    for target, source in enumerate((stdio.stdin, stdio.stdout, stdio.stderr)):
        os.dup2(source, target, inheritable=True)
    spare = fcntl.fcntl(gate, fcntl.F_DUPFD_CLOEXEC, 5)  # the gate itself may be 3 or 4
    for target, source in ((3, failure), (4, spare)):
        os.dup2(source, target, inheritable=False)
    os.closerange(5, _ABOVE)
    return 4, 3
