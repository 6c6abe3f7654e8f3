"""A queued run: its worker holds the lock, the request and the environment, and waits for its turn.

Nothing of the program exists yet.  The word ``dispatch`` sends the run on its way; a stop,
or a TERM, ends it here, with proof that it never ran.  Both may come at once: this process
is where it is decided, by what it reads first.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

from ..model.events import Kind
from ..process.failpoints import failpoint
from ..process.identity import self_identity
from ..process.signals import ignore, note
from ..runlog.writer import LogFullError
from .controls import Apply
from .desk import Desk
from .lifetime import HOST_GONE, HostWatch
from .poller import READ
from .resting import Resting
from .spec import Spec

_DISPATCHED = "dispatched"
_STOPPED = "stopped"
_TERMINATED = "worker_terminated"
_LOG_DELETED = "log_deleted"
_SIGNALS = (signal.SIGTERM, signal.SIGUSR1)
_LOOK_SECONDS = 10.0

Done = Callable[[dict[str, object]], None]


class Waiting:
    """Waits without a timer as long as its supervisor is there: it costs nothing until it hears something.

    Meanwhile it answers in the place of a program's controls, which the desk has already.
    """

    def __init__(self, spec: Spec, desk: Desk, host: HostWatch | None) -> None:
        self._spec = spec
        self._desk = desk
        self._host = host
        self._resting = Resting(desk.poller, model=False)
        self._decided: str | None = None
        # What came right behind the dispatch, for the program that is about to be.
        self._held: list[Callable[[], None]] = []
        self._wake = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._effects = desk.controls.appliers
        table = {op: self._later(op) for op in self._effects}
        desk.controls.appliers = {**table, "stop": self._stop, "dispatch": self._dispatch}

    def until_dispatched(self) -> bool:
        """True once it is this run's turn.  False: it never will be, and the log says why."""
        self._watch_signals()
        self._record()
        if self._host is not None:
            self._host.watch(lambda: self._decide(HOST_GONE))
        self._resting.turned()
        while self._decided is None:
            self._desk.serve(self._serve_once, self._desk.socket.ensure)
        self._forget_signals()
        if self._decided == _DISPATCHED:
            failpoint("waiting.dispatched")
            return True
        self._refuse(self._decided)
        return False

    def serve_held(self) -> None:
        """Apply what came right behind the dispatch; the program runs now."""
        self._desk.controls.appliers = self._effects
        for apply in self._held:
            apply()
        self._held.clear()

    def _record(self) -> None:
        """Who waits.  On the disk before anybody is told: after a power loss the log still has the request
        id, and the journal's word that it was never dispatched is then proof that it may run again.
        """
        log = self._desk.recorder.log
        log.append(
            Kind.RUN_QUEUED,
            {
                "attempt": self._spec.attempt,
                "identity": self_identity().to_dict(),
                "priority": self._spec.priority,
            },
        )
        self._desk.recorder.flush()
        failpoint("waiting.queued")
        try:
            log.sync()
        except (LogFullError, OSError):
            pass  # the run can wait all the same; what it costs is said above
        self._desk.socket.ensure()
        self._desk.say("queued")

    def _serve_once(self) -> None:
        self._desk.poller.turn()
        self._resting.turned()
        self._desk.recorder.flush()
        if self._desk.alone:
            self._look_at_log()

    def _look_at_log(self) -> None:
        """Whoever comes by finds a waiting run by its log.  Without it nobody ever will."""
        if self._desk.recorder.log.deleted:
            self._decide(_LOG_DELETED)
        else:
            self._desk.poller.at("log", time.monotonic() + _LOOK_SECONDS, lambda: None)

    def _decide(self, word: str) -> bool:
        if self._decided is None:
            self._decided = word
        return self._decided == word

    def _refuse(self, reason: str) -> None:
        detail: dict[str, object] = {"reason": reason, "retryable": reason != _STOPPED}
        self._desk.recorder.finish(Kind.RUN_NOT_STARTED, detail)
        failpoint("waiting.refused")
        self._desk.say("not_started")

    # Controls.

    def _dispatch(self, message: dict[str, object], blob: bytes, done: Done) -> None:
        done({"result": "dispatched" if self._decide(_DISPATCHED) else "too_late"})

    def _stop(self, message: dict[str, object], blob: bytes, done: Done) -> None:
        if self._decided == _DISPATCHED:
            self._later("stop")(message, blob, done)
        else:
            self._decide(_STOPPED)
            done({"result": "not_started"})

    def _later(self, op: str) -> Apply:
        """For a program that is not there yet: refused, unless it is about to be."""

        def apply(message: dict[str, object], blob: bytes, done: Done) -> None:
            if self._decided == _DISPATCHED:
                self._held.append(lambda: self._effects[op](message, blob, done))
            else:
                done({"result": "not_running"})

        return apply

    # Signals.

    def _watch_signals(self) -> None:
        wake_read, wake_write = self._wake
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        note(_SIGNALS)
        self._desk.poller.watch(wake_read, READ, lambda _: self._on_signals())

    def _forget_signals(self) -> None:
        """As a worker has them that never waited."""
        wake_read, wake_write = self._wake
        ignore(_SIGNALS)
        signal.set_wakeup_fd(-1)
        self._desk.poller.forget(wake_read)
        os.close(wake_read)
        os.close(wake_write)

    def _on_signals(self) -> None:
        received = os.read(self._wake[0], 512)
        if signal.SIGUSR1 in received:
            self._desk.socket.ensure()
        if signal.SIGTERM in received:
            self._decide(_TERMINATED)
