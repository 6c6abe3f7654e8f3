"""A small process that has the worker's modules loaded, and forks workers from itself.

Started by exec like a worker: ``python -I -S -X utf8 zygote.py``, with its control
socket as descriptor 3.  Each message is a run id with two descriptors: the locked
run log and the worker's channel.  It answers ``<run id> pid <pid>`` or ``<run id> errno
<number>``.  Single-threaded: nothing but these two descriptors crosses a fork.  It
ends when its supervisor's end of the socket closes; the workers do not.
"""

from __future__ import annotations

import os
import sys

CONTROL_FD = 3
_MAX_MESSAGE = 256


def serve() -> None:
    """Fork workers until the supervisor is gone.  Never returns."""
    import gc
    import select
    import signal
    import socket

    from durable_supervisor.process.identity import warm
    from durable_supervisor.worker.main import close_strangers, work

    close_strangers(CONTROL_FD)
    os.chdir("/")
    for signo in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGPIPE, signal.SIGTERM):
        signal.signal(signo, signal.SIG_IGN)
    wake_read, wake_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    control = socket.socket(fileno=CONTROL_FD)
    # What is loaded now is shared with every worker for good: keep the collector from touching it.
    warm()
    gc.collect()
    gc.freeze()
    poll = select.poll()
    poll.register(control, select.POLLIN)
    poll.register(wake_read, select.POLLIN)
    while True:
        ready = {fd for fd, _ in poll.poll()}
        if wake_read in ready:
            os.read(wake_read, 512)
            _reap()
        if CONTROL_FD not in ready:
            continue
        message, fds, _, _ = socket.recv_fds(control, _MAX_MESSAGE, 2)
        if not message:
            os._exit(0)  # the supervisor is gone; workers live on
        if _fork(control, message, fds):
            work()


def _fork(control: object, message: bytes, fds: list[int]) -> bool:
    """True in the worker, whose descriptors are in their places; False in the zygote."""
    import signal
    import socket

    from durable_supervisor.process.failpoints import failpoint
    from durable_supervisor.worker.spec import CHANNEL_FD, LOG_FD

    assert isinstance(control, socket.socket)
    failpoint("zygote.asked")
    run_id = message.decode("ascii", "replace")
    answer: tuple[str, int]
    try:
        pid = os.fork()
    except OSError as error:
        answer = ("errno", error.errno or 0)
    else:
        if pid == 0:
            signal.set_wakeup_fd(-1)
            os.setsid()
            control.detach()
            _place(fds, (LOG_FD, CHANNEL_FD))
            return True
        answer = ("pid", pid)
    failpoint("zygote.forked")
    for fd in fds:
        os.close(fd)
    try:
        control.send(f"{run_id} {answer[0]} {answer[1]}".encode())
    except OSError:
        os._exit(0)
    return False


def _place(fds: list[int], numbers: tuple[int, ...]) -> None:
    """Move descriptors to fixed numbers, whatever stands there now."""
    import fcntl

    high = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, max(numbers) + 1) for fd in fds]
    for fd, number in zip(high, numbers, strict=True):
        os.dup2(fd, number, inheritable=False)
    # The originals and copies go with every other stranger when the worker hardens itself.


def _reap() -> None:
    while True:
        try:
            if os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG) is None:
                return
        except ChildProcessError:
            return


if __name__ == "__main__":
    sys.path.append(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
    serve()
