"""A paused child by fork(2): anything can be done in it, and it begins with a copy of its parent's memory.

The copy costs both sides.  Page tables are copied at once, and from then on the first write to each
page is a fault in either process.  For a worker that is 0.4 ms and some 500 faults, and 200 of the child's.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable

from ..failpoints import failpoint
from ..program import Program, Stdio
from ..signals import STRAY_SIGNALS, reset, unblock_all
from .failure import CONFINE, CWD, EXEC, FAILURE, NEVER_RELEASED, PREPARE

# A worker has no descriptor as high as this when it forks: it has just begun.  (One that waited in the
# queue may have, of whoever is connected to it: they close at exec, and none of them is a lock.)
_ABOVE = 128
POINTS = ("program.paused", "program.released")  # failpoints in the child


def start(program: Program, stdio: Stdio, pipes: list[int], confine: Callable[[], bytes] | None) -> int:
    """The child's pid.  ``pipes``: its ends for failure, gate and report.  Raises OSError."""
    pid = os.fork()
    if pid == 0:
        _child(program, stdio, pipes, confine)
    return pid


def _child(program: Program, stdio: Stdio, pipes: list[int], confine: Callable[[], bytes] | None) -> None:
    """Never returns.  Holds no lock of the parent by the time it waits at the gate."""
    failure = pipes[0]
    step = PREPARE
    try:
        os.setsid()
        _default_signals()
        failure, gate, *reports = _arrange_descriptors(stdio, pipes)
        if stdio.terminal:
            _take_terminal()
        step = CWD
        os.chdir(program.cwd)
        os.umask(program.umask)
        if confine is not None:
            step = CONFINE
            _report(confine(), reports[0])
        failpoint("program.paused")
        if os.read(gate, 1) != b"\1":
            os._exit(NEVER_RELEASED)
        failpoint("program.released")
        step = EXEC
        os.execve(program.path, program.argv, program.env)
    except OSError as error:
        os.write(failure, FAILURE.pack(error.errno or errno.EIO, step))
    except MemoryError:
        os.write(failure, FAILURE.pack(errno.ENOMEM, step))
    except BaseException:  # noqa: BLE001  nothing may escape into a second copy of the worker
        os.write(failure, FAILURE.pack(errno.EINVAL, step))
    finally:
        os._exit(NEVER_RELEASED)


def _report(report: bytes, pipe: int) -> None:
    with open(pipe, "wb") as writer:
        writer.write(report)


def _default_signals() -> None:
    """An ignored signal stays ignored over exec, and so does the mask (signal(7)); handlers do not."""
    reset(STRAY_SIGNALS)
    unblock_all()


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
        os.set_inheritable(target, True)  # also where it has been there already
    end = 3 + len(pipes)
    spare = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, end) for fd in pipes]  # they may be in 3..end themselves
    for target, source in enumerate(spare, 3):
        os.dup2(source, target, inheritable=False)
    os.closerange(end, _ABOVE)
    return list(range(3, end))
