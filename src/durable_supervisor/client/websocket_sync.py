"""The WebSocket to the service, for threads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from .block import drive
from .failures import LostError
from .framing import Framing
from .link import Link
from .request import ANSWER_SECONDS, Form

_GOODBYE_SECONDS: Final = 1.0


class SyncWebSocket:
    """For one thread at a time.  Raises `LostError` once the connection has ended."""

    def __init__(self, link: Link, target: str) -> None:
        """Raises what the service answers instead."""
        self._link = link
        self._framing = Framing(target)
        self._come: list[Form] = []
        self._flush()
        while not self._framing.accepted:
            self._come = self._framing.feed(drive(self._link.read(ANSWER_SECONDS)))

    def send(self, form: Mapping[str, object]) -> None:
        """One object; returns when it is handed over to the system."""
        self._framing.send(form)
        self._flush()

    def receive(self, seconds: float) -> list[Form]:
        """What comes next, perhaps nothing (yet), after at most so long."""
        if self._come:  # together with the acceptance
            come, self._come = self._come, []
            return come
        come = []
        if self._framing.close_code is None and drive(self._link.comes(seconds)):
            come = self._framing.feed(drive(self._link.read(ANSWER_SECONDS)))
            self._flush()
        if not come and self._framing.close_code is not None:
            raise LostError("it ended the connection", sent=True)
        return come

    def wait(self) -> None:
        """Until there is something to `receive`, the end included.  From any thread."""
        drive(self._link.comes(None))

    def hang_up(self) -> None:
        """From any thread: whoever waits here finds the connection ended."""
        self._link.hang_up()

    def close(self) -> None:
        """Say goodbye, if there is still somebody to hear it.  The connection is its maker's to close."""
        self._framing.close()
        try:
            self._flush(_GOODBYE_SECONDS)
        except LostError:
            return

    def _flush(self, silence: float = ANSWER_SECONDS) -> None:
        data, self._framing.outgoing = self._framing.outgoing, b""
        drive(self._link.push(data, silence))
