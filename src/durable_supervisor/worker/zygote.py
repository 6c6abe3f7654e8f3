"""A small process that has the worker's modules loaded, and forks workers from itself.

Started by exec like a worker: ``python -I -S -X utf8 zygote.py``, with its control
socket as descriptor 3.  Each message is a run id with the locked run log and the worker's
channel.  It answers ``<run id> pid <pid>`` or ``<run id> errno <number>``.  Single-threaded:
nothing but these descriptors reaches a worker.  It ends when its supervisor's end of the
socket closes; the workers do not.

One worker is kept waiting, rehearsed, for the next request (`rehearsal` says why);
where none waits, one is forked on the spot.  One of them becomes the `model` of the others.
"""

from __future__ import annotations

import os
import sys

CONTROL_FD = 3
HANDOVER_FD = 3  # the socket on which a worker waits for its run
_MAX_MESSAGE = 256
_MAX_DESCRIPTORS = 2
TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket

    from durable_supervisor.process.samepage.merge import Merger


class Zygote:
    """The loop that answers requests, and the worker that waits for the next."""

    def __init__(self, control: socket.socket, merger: Merger | None) -> None:
        self._control = control
        self._merger = merger
        self._waiting: tuple[int, socket.socket] | None = None
        self._model = 0  # its pid

    def serve(self, wake: int) -> bool:
        """Until the supervisor is gone.  Returns in a worker, whose descriptors are in their places.

        Has it waited, and so is hardened already?
        """
        import select
        import socket

        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        poll.register(wake, select.POLLIN)
        wanted = -1 if self._merger is None else self._merger.wanted
        if wanted >= 0:
            poll.register(wanted, select.POLLIN)
        while True:
            ready = {fd for fd, _ in poll.poll()}
            if wake in ready:
                os.read(wake, 512)
                self._reap()
            if CONTROL_FD in ready:
                message, fds, _, _ = socket.recv_fds(self._control, _MAX_MESSAGE, _MAX_DESCRIPTORS)
                if not message:
                    os._exit(0)  # the supervisor is gone; workers live on, one that waits leaves
                if self._give(message, fds):
                    place(fds)
                    return False
            if wanted in ready:
                poll.unregister(wanted)  # whether it comes to be or not
                self._make_model()
            if self._waiting is None and self._keep_one_waiting():
                return True

    def _make_model(self) -> None:
        """Of the worker that waits.  Without one, the others have more memory of their own, no more."""
        from durable_supervisor.worker.model import present

        if self._waiting is None:
            return
        (self._model, handover), self._waiting = self._waiting, None
        try:
            pid = os.fork()
        except OSError:
            pid = -1
        if pid == 0:
            self._control.close()  # the supervisor's end would not tell when the zygote is gone
            present(handover)
        handover.close()

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
        (pid, handover), self._waiting = self._waiting, None
        try:
            if stands_still(pid):  # and so would the run
                pid = 0
            else:
                socket.send_fds(handover, [b"\1"], fds)
        except OSError:  # killed meanwhile
            pid = 0
        handover.close()
        return pid

    def _keep_one_waiting(self) -> bool:
        """Fork the next worker ahead of its run; True in that one, once it has it."""
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
        os.dup2(theirs.detach(), HANDOVER_FD, inheritable=False)
        await_run()
        return True

    def _reap(self) -> None:
        from durable_supervisor.worker.resting import share

        try:
            while (ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG)) is not None:
                if ended.si_pid == self._model and share():  # the image is there
                    self._renew_waiting()
        except ChildProcessError:
            return

    def _renew_waiting(self) -> None:
        """Forked before, it has alone now what it had in common with us."""
        if self._waiting is not None:
            self._waiting[1].close()
            self._waiting = None

    def _become_worker(self) -> None:
        import signal

        signal.set_wakeup_fd(-1)
        os.setsid()
        self._control.detach()
        if self._waiting is not None:
            self._waiting[1].detach()


def await_run() -> None:
    """Rehearse, then wait for the descriptors of a run, and put them in their places.

    Exits when whoever would send them is gone.
    """
    import socket

    from durable_supervisor.worker.main import close_strangers, harden
    from durable_supervisor.worker.rehearsal import rehearse
    from durable_supervisor.worker.reuse import note_circumstances

    close_strangers(HANDOVER_FD)
    harden()
    handover = socket.socket(fileno=HANDOVER_FD)
    if not _has_come(handover):
        rehearse()
    note_circumstances()
    message, fds, _, _ = socket.recv_fds(handover, 1, _MAX_DESCRIPTORS)
    if not message or len(fds) < _MAX_DESCRIPTORS:
        os._exit(0)
    handover.detach()
    place(fds)


def _has_come(handover: socket.socket) -> bool:
    """Does the run wait already, or is whoever would send it gone?"""
    import select

    poll = select.poll()
    poll.register(handover, select.POLLIN)
    return bool(poll.poll(0))


def place(fds: list[int]) -> None:
    """Move what was given to its numbers, whatever stands there now, and close the rest."""
    import fcntl

    from durable_supervisor.worker.main import close_strangers
    from durable_supervisor.worker.numbers import CHANNEL_FD, LAST_FD, LOG_FD

    high = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, LAST_FD + 1) for fd in fds]
    for fd, number in zip(high, (LOG_FD, CHANNEL_FD), strict=True):
        os.dup2(fd, number, inheritable=False)
    close_strangers(LAST_FD)


def prepare_merger() -> Merger | None:
    """What lets idle workers share their memory, where there can be such."""
    from durable_supervisor.process.samepage.merge import prepare
    from durable_supervisor.worker import resting
    from durable_supervisor.worker.numbers import LAST_FD

    try:
        merger = prepare(LAST_FD + 1)
    except OSError:
        return None
    if merger is not None:
        resting.use(merger)
    return merger


def main() -> None:
    """Load, settle down, serve; and in each worker, work.  Never returns."""
    import gc
    import signal
    import socket

    from durable_supervisor.process.identity import warm
    from durable_supervisor.process.signals import ignore, note
    from durable_supervisor.worker.adapting import adapt, use_up_gaps
    from durable_supervisor.worker.main import close_strangers, work
    from durable_supervisor.worker.rehearsal import note_pages

    close_strangers(CONTROL_FD)
    os.chdir("/")
    ignore([signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGPIPE, signal.SIGTERM])
    merger = prepare_merger()
    warm()
    adapt()  # once here, for all workers, and before there are any: it ends what is below it
    gc.collect()
    close_strangers(CONTROL_FD)  # what that has left open, should it have come to lack descriptors
    wake_read, wake_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    note([signal.SIGCHLD])
    zygote = Zygote(socket.socket(fileno=CONTROL_FD), merger)
    # What is loaded now is shared with every worker: keep the collector from touching it.
    gc.freeze()
    note_pages()
    use_up_gaps()
    work(hardened=zygote.serve(wake_read), forked=True)


if __name__ == "__main__":
    sys.path.append(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
    main()
