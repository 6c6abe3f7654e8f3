"""A small process that has the worker's modules loaded, and forks workers from itself.

Started by exec like a worker: ``python -I -S -X utf8 zygote.py``, with its control
socket as descriptor 3.  Each message is a run id with two descriptors: the locked
run log and the worker's channel.  It answers ``<run id> pid <pid>`` or ``<run id> errno
<number>``.  Single-threaded: nothing but these two descriptors reaches a worker.  It
ends when its supervisor's end of the socket closes; the workers do not.

One worker is kept waiting, rehearsed, for the next request (`rehearsal` says why);
where none waits, one is forked on the spot.
"""

from __future__ import annotations

import os
import sys

CONTROL_FD = 3
TURN_FD = 3  # a waiting worker's, until it gets its run
_MAX_MESSAGE = 256
TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket


class Zygote:
    """The loop that answers requests, and the worker that waits for the next."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._waiting: tuple[int, socket.socket] | None = None

    def serve(self, wake: int) -> bool:
        """Until the supervisor is gone.  Returns in a worker, whose descriptors are in their places.

        True in one that has waited, and so is hardened already.
        """
        import select
        import socket

        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        poll.register(wake, select.POLLIN)
        while True:
            ready = {fd for fd, _ in poll.poll()}
            if wake in ready:
                os.read(wake, 512)
                _reap()
            if CONTROL_FD in ready:
                message, fds, _, _ = socket.recv_fds(self._control, _MAX_MESSAGE, 2)
                if not message:
                    os._exit(0)  # the supervisor is gone; workers live on, one that waits leaves
                if self._give(message, fds):
                    return False
                if self._keep_one_waiting():
                    return True

    def _give(self, message: bytes, fds: list[int]) -> bool:
        """Hand the run to a worker and answer; True in a worker forked for it."""
        from durable_supervisor.process.failpoints import failpoint

        failpoint("zygote.asked")
        pid = self._give_waiting(fds)
        word = "pid"
        if not pid:
            try:
                pid = os.fork()
            except OSError as error:
                word, pid = "errno", error.errno or 0
            else:
                if pid == 0:
                    self._become_worker()
                    place(fds)
                    return True
        failpoint("zygote.forked")
        for fd in fds:
            os.close(fd)
        try:
            self._control.send(message + f" {word} {pid}".encode())
        except OSError:
            os._exit(0)
        return False

    def _give_waiting(self, fds: list[int]) -> int:
        """The pid of the waiting worker that has the descriptors now; 0 when there is none."""
        import socket

        if self._waiting is None:
            return 0
        (pid, turn), self._waiting = self._waiting, None
        try:
            socket.send_fds(turn, [b"\1"], fds)
        except OSError:  # killed meanwhile
            pid = 0
        turn.close()
        return pid

    def _keep_one_waiting(self) -> bool:
        """Fork the next worker ahead of its run.  True in that worker, once it has one."""
        import socket

        from durable_supervisor.process.failpoints import any_armed

        if any_armed():  # a rehearsal would meet the points that are meant for the run
            return False
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            pid = os.fork()
        except OSError:
            ours.close()
            theirs.close()
            return False
        if pid:
            theirs.close()
            self._waiting = (pid, ours)
            return False
        ours.close()
        self._become_worker()
        os.dup2(theirs.detach(), TURN_FD, inheritable=False)
        await_turn()
        return True

    def _become_worker(self) -> None:
        import signal

        signal.set_wakeup_fd(-1)
        os.setsid()
        self._control.detach()
        if self._waiting is not None:
            self._waiting[1].detach()


def await_turn() -> None:
    """Rehearse, then wait for the descriptors of a run; leave when whoever would send them does."""
    import socket

    from durable_supervisor.worker.main import close_strangers, harden
    from durable_supervisor.worker.rehearsal import rehearse

    close_strangers(TURN_FD)
    harden()
    rehearse()
    turn = socket.socket(fileno=TURN_FD)
    message, fds, _, _ = socket.recv_fds(turn, 1, 2)
    if not message or len(fds) != 2:
        os._exit(0)
    turn.detach()
    place(fds)


def place(fds: list[int]) -> None:
    """Move the log and the channel to their numbers, whatever stands there now, and close the rest."""
    import fcntl

    from durable_supervisor.worker.main import close_strangers
    from durable_supervisor.worker.spec import CHANNEL_FD, LAST_FD, LOG_FD

    high = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, LAST_FD + 1) for fd in fds]
    for fd, number in zip(high, (LOG_FD, CHANNEL_FD), strict=True):
        os.dup2(fd, number, inheritable=False)
    close_strangers(LAST_FD)


def _reap() -> None:
    while True:
        try:
            if os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG) is None:
                return
        except ChildProcessError:
            return


def main() -> None:
    """Load, settle down, serve; and in each worker, work.  Never returns."""
    import gc
    import signal
    import socket

    from durable_supervisor.process import gate
    from durable_supervisor.process.identity import warm
    from durable_supervisor.worker.main import close_strangers, work
    from durable_supervisor.worker.rehearsal import rehearse

    close_strangers(CONTROL_FD)
    os.chdir("/")
    for signo in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGPIPE, signal.SIGTERM):
        signal.signal(signo, signal.SIG_IGN)
    wake_read, wake_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    zygote = Zygote(socket.socket(fileno=CONTROL_FD))
    warm()
    gate.prepare()  # where it cannot be, workers fork their programs
    rehearse()  # the interpreter adapts code as it runs it: once here, for all
    # What is loaded now is shared with every worker: keep the collector from touching it.
    gc.collect()
    gc.freeze()
    work(hardened=zygote.serve(wake_read))


if __name__ == "__main__":
    sys.path.append(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
    main()
