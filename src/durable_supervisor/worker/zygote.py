"""A small process that has the worker's modules loaded, and forks workers from itself.

Started by exec like a worker: ``python -I -S -X utf8 zygote.py``, with its control
socket as descriptor 3.  Each message is a run id with the locked run log, the worker's
channel and, where the supervisor may have further runs for the same worker, the socket
on which they will come (see `reuse`).  It answers ``<run id> pid <pid>`` or ``<run id> errno
<number>``.  Single-threaded: nothing but these descriptors reaches a worker.  It
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
_MAX_DESCRIPTORS = 3
TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket


class Zygote:
    """The loop that answers requests, and the worker that waits for the next."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._waiting: tuple[int, socket.socket] | None = None

    def serve(self, wake: int) -> tuple[bool, bool]:
        """Until the supervisor is gone.  Returns in a worker, whose descriptors are in their places.

        Has it waited, and so is hardened already?  Is it to be kept for further runs?
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
                message, fds, _, _ = socket.recv_fds(self._control, _MAX_MESSAGE, _MAX_DESCRIPTORS)
                if not message:
                    os._exit(0)  # the supervisor is gone; workers live on, one that waits leaves
                if self._give(message, fds):
                    return False, place(fds)
                kept = self._keep_one_waiting()
                if kept is not None:
                    return True, kept

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

        from durable_supervisor.process.identity import stands_still

        if self._waiting is None:
            return 0
        (pid, turn), self._waiting = self._waiting, None
        try:
            if stands_still(pid):  # and so would the run
                pid = 0
            else:
                socket.send_fds(turn, [b"\1"], fds)
        except OSError:  # killed meanwhile
            pid = 0
        turn.close()
        return pid

    def _keep_one_waiting(self) -> bool | None:
        """Fork the next worker ahead of its run.  In that one, once it has it: may it have further ones?"""
        import socket

        from durable_supervisor.process.failpoints import any_armed

        if any_armed():  # a rehearsal would meet the points that are meant for the run
            return None
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            pid = os.fork()
        except OSError:
            ours.close()
            theirs.close()
            return None
        if pid:
            theirs.close()
            self._waiting = (pid, ours)
            return None
        ours.close()
        self._become_worker()
        os.dup2(theirs.detach(), TURN_FD, inheritable=False)
        return await_turn()

    def _become_worker(self) -> None:
        import signal

        signal.set_wakeup_fd(-1)
        os.setsid()
        self._control.detach()
        if self._waiting is not None:
            self._waiting[1].detach()


def await_turn() -> bool:
    """Rehearse, then wait for the descriptors of a run; leave when whoever would send them does.

    They are in their places then.  True if there may be further runs.
    """
    import socket

    from durable_supervisor.worker.main import close_strangers, harden
    from durable_supervisor.worker.rehearsal import rehearse
    from durable_supervisor.worker.reuse import note_circumstances

    close_strangers(TURN_FD)
    harden()
    rehearse()
    note_circumstances()
    turn = socket.socket(fileno=TURN_FD)
    message, fds, _, _ = socket.recv_fds(turn, 1, _MAX_DESCRIPTORS)
    if not message or len(fds) < 2:
        os._exit(0)
    turn.detach()
    return place(fds)


def place(fds: list[int]) -> bool:
    """Move what was given to its numbers, whatever stands there now, and close the rest.

    True if that includes where the next run will come.
    """
    import fcntl

    from durable_supervisor.worker.main import close_strangers
    from durable_supervisor.worker.spec import CHANNEL_FD, LOG_FD, NEXT_FD

    numbers = (LOG_FD, CHANNEL_FD, NEXT_FD)[: len(fds)]
    high = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, NEXT_FD + 1) for fd in fds]
    for fd, number in zip(high, numbers, strict=True):
        os.dup2(fd, number, inheritable=False)
    close_strangers(max(numbers))
    return NEXT_FD in numbers


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

    from durable_supervisor.process.identity import warm
    from durable_supervisor.process.signals import ignore, note
    from durable_supervisor.worker.main import close_strangers, work
    from durable_supervisor.worker.rehearsal import adapt

    close_strangers(CONTROL_FD)
    os.chdir("/")
    ignore([signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGPIPE, signal.SIGTERM])
    wake_read, wake_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    note([signal.SIGCHLD])
    zygote = Zygote(socket.socket(fileno=CONTROL_FD))
    warm()
    adapt()  # once here, for all workers
    # What is loaded now is shared with every worker: keep the collector from touching it.
    gc.collect()
    gc.freeze()
    hardened, kept = zygote.serve(wake_read)
    work(hardened=hardened, kept=kept)


if __name__ == "__main__":
    sys.path.append(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
    main()
