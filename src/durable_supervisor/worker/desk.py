"""What a worker hears and answers by: one loop, one log, one socket, from its first record to its last."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable

from ..process.shortage import is_shortage
from ..runlog.paths import RunPaths
from ..runlog.writer import LogWriter
from .connections import ControlSocket
from .controls import Controls
from .poller import Poller
from .record import Recorder

_PAUSE = 0.1


class Desk:
    """The supervisor's ``channel`` is one more connection.  Until somebody fills in its table
    (``controls.appliers``) every control is an invalid one.
    """

    def __init__(
        self, log: LogWriter, paths: RunPaths, channel: socket.socket, *, nowhere: bool = False
    ) -> None:
        self.poller = Poller()
        self.recorder = Recorder(log, self.poller, self._on_head)
        self.controls = Controls(self.recorder, {})
        self.socket = ControlSocket(paths.socket, self.poller, self.controls.on_message, nowhere=nowhere)
        self._supervisor = self.socket.adopt(channel)

    def serve(self, once: Callable[[], None], again: Callable[[], None]) -> None:
        """One turn of a loop.  A shortage that passes is no reason to leave a run alone.

        ``again`` then looks, in a moment, for what was to be seen: a wake-up may have been used up.
        """
        try:
            once()
        except OSError as error:
            if not is_shortage(error):
                raise
            self.poller.at("again", time.monotonic() + _PAUSE, again)

    def say(self, what: str) -> None:
        """To the supervisor that started us, if it still listens."""
        self._supervisor.send({"type": what, "head": self.recorder.log.head})

    def settle_in(self) -> None:
        """It is no short run: others may want to reach it, and there may be more to tell."""
        self.socket.ensure()
        self.recorder.log.keep_whole_reserve()

    def hang_up(self) -> None:
        """The run is over: let go of everybody but the supervisor that started us."""
        self.socket.close(but=self._supervisor)

    def close(self) -> None:
        """Hear nothing more.  The supervisor's channel stays open, for a last word."""
        self.poller.close()
        self._supervisor.unwatch()

    def part(self, word: str, run_id: str) -> bool:
        """A last ``word`` to the supervisor, whose channel stays open.

        True if it is sent, and no frame half sent or half read: both sides know where the next one begins.
        """
        self._supervisor.send({"type": word, "pid": os.getpid(), "run": run_id})
        return self._supervisor.between_frames

    @property
    def alone(self) -> bool:
        """Has the supervisor that started us gone, or let go of us?  Another one may come by."""
        return not self._supervisor.open

    def _on_head(self, head: int) -> None:
        self.socket.wake(head)
