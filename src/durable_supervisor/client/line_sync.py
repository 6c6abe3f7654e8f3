"""A viewer's own WebSocket to the service, to which the lease on its input is bound; for threads."""

from __future__ import annotations

import itertools
import os
import threading
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

from ..model.errors import SupervisorError
from .answer import told_error
from .block import drive
from .failures import LostError, unavailable
from .messages import MAY_RETURN, input_target
from .request import ANSWER_SECONDS, Form
from .websocket_sync import SyncWebSocket

if TYPE_CHECKING:
    from .sync import Client


class SyncLine:
    """Connected from the first `lease` on.  One thread at a time talks on it.

    A thread of our own listens meanwhile, so that a loss is noticed and a service that goes need
    not wait for us.  A lease that went with it is asked for again by the next input, never stolen.
    """

    def __init__(self, client: Client, run: str) -> None:
        self.lost = threading.Event()  # another has taken the lease over
        self._client = client
        self._run = run
        self._pid = os.getpid()
        self._ids = itertools.count(1)
        self._lock = threading.Lock()
        self._socket: SyncWebSocket | None = None
        self._held = False
        self._regaining = False

    @property
    def holds_lease(self) -> bool:
        return self._held

    def lease(self, *, steal: bool, timeout: float) -> bool:
        """Raises what the service answers, ``SERVICE_UNAVAILABLE`` and TimeoutError."""
        self._client._connections.check_open()
        until = time.monotonic() + timeout
        with self._lock:
            self._take_in()
            if self._socket is None:
                self._connect("steal" if steal else "ask", until)
            elif not self._held and self._exchange("lease", {"steal": steal}, until) is None:
                raise unavailable(LostError("it ended the connection"))
            return self._held

    def settled(self) -> bool:
        """Is the lease held?  Regains it where it went with the service, if the service is back in time."""
        self._client._connections.check_open()
        with self._lock:
            self._take_in()
            patience = self._client._calls.patience()
            while self._regaining:
                try:
                    self._connect("ask", time.monotonic() + ANSWER_SECONDS)
                except (SupervisorError, TimeoutError) as error:
                    away = isinstance(error, TimeoutError) or error.code in MAY_RETURN
                    self._regaining = away and drive(patience.again())
            return self._held

    def ask(self, kind: str, fields: Form, timeout: float) -> Form | None:
        """The answer to a message; None when the connection ends first.  Raises the failure that it tells,
        and TimeoutError."""
        with self._lock:
            return self._exchange(kind, fields, time.monotonic() + timeout)

    def close(self) -> None:
        """Hang up, which frees the lease.  Idempotent; whoever waits for an answer gets none.

        In a forked copy it does nothing: the line is the original's, and the lock may be held there for ever.
        """
        if os.getpid() != self._pid:
            return
        if not self._lock.acquire(blocking=False):
            if (socket := self._socket) is not None:
                socket.hang_up()
            self._lock.acquire()
        try:
            self._hang_up()
            self._regaining = False
        finally:
            self._lock.release()

    def _connect(self, writer: str, until: float) -> None:
        """Until the service has said who has the lease.  Raises TimeoutError."""
        connections = self._client._connections
        with ExitStack() as opened:
            try:
                link = drive(connections.dial())
                opened.enter_context(connections.using(link))
                self._socket = SyncWebSocket(link, input_target(self._run, writer))
                told = False
                while not told:
                    for form in self._receive(until):
                        told |= self._heard(form)
            except LostError as lost:
                self._hang_up()
                raise self._client._calls.gone(lost) from lost
            except BaseException:
                self._hang_up()
                raise
            listening = (self._socket, opened.pop_all())
        threading.Thread(
            target=self._listen, args=listening, name="durable-supervisor-lease", daemon=True
        ).start()

    def _listen(self, socket: SyncWebSocket, opened: ExitStack) -> None:
        """Until it is hung up.  The descriptor is closed here, where nobody waits on it any more."""
        with opened:
            while self._socket is socket:
                socket.wait()
                with self._lock:
                    if self._socket is socket:
                        self._take_in()

    def _exchange(self, kind: str, fields: Form, until: float) -> Form | None:
        if self._socket is None:
            return None
        message_id = str(next(self._ids))
        answer: Form | None = None
        try:
            self._socket.send({"type": kind, "id": message_id, **fields})
            while answer is None:
                for form in self._receive(until):
                    self._heard(form)
                    answer = form if form.get("id") == message_id else answer
        except LostError:
            self._lose()
            return None
        if answer.get("type") == "error":
            raise told_error(kind, answer)
        return answer

    def _take_in(self) -> None:
        """What has come since somebody last read."""
        try:
            while self._socket is not None and (come := self._socket.receive(0)):
                for form in come:
                    self._heard(form)
        except (LostError, SupervisorError):  # what nobody has asked for is no better than an end
            self._lose()

    def _receive(self, until: float) -> list[Form]:
        assert self._socket is not None  # noqa: S101  or there is nobody to be waited for
        come = self._socket.receive(max(0.0, until - time.monotonic()))
        if not come and time.monotonic() >= until:
            raise TimeoutError
        return come

    def _heard(self, form: Form) -> bool:
        """Was it about the lease?  Raises what the service says of the one that the address asks for."""
        if form.get("type") == "error" and form.get("id") is None:
            self._regaining = False
            raise told_error("lease", form)
        if form.get("type") != "lease":
            return False
        self._held = form.get("held") is True
        if self._held:
            self.lost.clear()
        elif self._regaining or form.get("result") == "lost":
            self.lost.set()
        self._regaining = False
        return True

    def _lose(self) -> None:
        self._regaining |= self._held
        self._hang_up()

    def _hang_up(self) -> None:
        socket, self._socket, self._held = self._socket, None, False
        if socket is not None:
            socket.close()
            socket.hang_up()
