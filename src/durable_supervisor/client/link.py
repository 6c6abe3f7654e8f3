"""One connection to the service: a non-blocking socket, and how far HTTP/1.1 has come on it."""

from __future__ import annotations

import json
import os
import socket
from typing import Final
from weakref import WeakSet

import h11

from ..process import forks
from .answer import Answer
from .failures import LostError
from .locate import open_socket
from .request import EVENT_STREAM, Request
from .steps import Steps, Wait

_CHUNK: Final = 64 * 1024
_MAX_HEAD: Final = 64 * 1024
_NO_SIGNAL: Final = getattr(socket, "MSG_NOSIGNAL", 0)  # the host may have let SIGPIPE kill it again


class Link:
    """For one call at a time.  Whoever leaves it half-way must `close` it."""

    def __init__(self, path: str) -> None:
        """Connect.  Raises what `open_socket` does."""
        with forks.no_fork:  # or a copy of this process could keep it open unknown to `_in_child`
            self._sock = open_socket(path)
            _open.add(self)
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=_MAX_HEAD)
        self._sent = 0  # bytes of the request under way
        self._cut = False  # it was answered before it was sent whole

    def exchange(self, request: Request) -> Steps[Answer]:
        """One request and its whole answer.  Raises `LostError`."""
        return (yield from self.answer((yield from self.ask(request)), request))

    def ask(self, request: Request) -> Steps[h11.Response]:
        """Send it; the head of the answer.  Raises `LostError`."""
        yield from self.send(request)
        return (yield from self.head(request))

    def send(self, request: Request) -> Steps[None]:
        """The whole of it, if the service takes it.  Raises `LostError`."""
        self._sent = 0
        try:
            yield from self.write(_encoded(self._http, request), request.silence)
        except OSError as error:
            if not self._sent:
                raise LostError(f"it has closed the connection ({error.strerror})") from error
            self._cut = True  # it may have answered without reading on: then its word is still to be read

    def comes(self, seconds: float | None) -> Steps[bool]:
        """Is there something to be read, the end included, within so long?  None: however long it takes."""
        return (yield Wait(self._sock, seconds))

    def head(self, request: Request) -> Steps[h11.Response]:
        """The head of the answer.  Raises `LostError`."""
        while True:
            event = yield from self._event(request.silence)
            if isinstance(event, h11.Response):
                return event
            if not isinstance(event, h11.InformationalResponse):
                raise self._lost("it ended the connection")

    def answer(self, head: h11.Response, request: Request) -> Steps[Answer]:
        """The rest of an answer that is one document.  Raises `LostError`."""
        pieces: list[bytes] = []
        while (piece := (yield from self.piece(request.silence))) is not None:
            pieces.append(piece)
        try:
            form = json.loads(b"".join(pieces))
        except (ValueError, RecursionError):
            form = None
        if not isinstance(form, dict):
            raise self._lost(f"it answered with status {head.status_code} and no document")
        return Answer(head.status_code, form)

    def piece(self, silence: float) -> Steps[bytes | None]:
        """The next bytes of the answer's body; None at its end.  Raises `LostError`."""
        event = yield from self._event(silence)
        return bytes(event.data) if isinstance(event, h11.Data) else None

    def finish(self) -> bool:
        """The exchange is over: is the connection fit for another?"""
        if self._cut or self._http.their_state is not h11.DONE or self._http.our_state is not h11.DONE:
            return False
        self._http.start_next_cycle()
        return not self._http.trailing_data[0]

    def is_quiet(self) -> bool:
        """Still connected, and nothing has come that nobody asked for."""
        try:
            self._sock.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    def hang_up(self) -> None:
        """Whoever waits on it finds it ended.  The descriptor stays theirs, to be closed by them."""
        try:
            self._sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            return

    def close(self) -> None:
        """Idempotent."""
        self._sock.close()

    def write(self, data: bytes, silence: float) -> Steps[None]:
        """Send all of it.  Raises OSError, `LostError`."""
        view = memoryview(data)
        while view:
            try:
                taken = self._sock.send(view, _NO_SIGNAL)
            except BlockingIOError:
                if not (yield Wait(self._sock, silence, write=True)):
                    raise self._lost(f"it took nothing for {silence:g} s") from None
                continue
            self._sent += taken
            view = view[taken:]

    def push(self, data: bytes, silence: float) -> Steps[None]:
        """As `write`.  A connection that breaks is a `LostError`, too."""
        try:
            yield from self.write(data, silence)
        except OSError as error:
            raise LostError(f"the connection broke ({error.strerror})", sent=True) from error

    def read(self, silence: float) -> Steps[bytes]:
        """Some bytes; none at the end.  Waits even where some are there: an event loop serves others too."""
        while True:
            if not (yield Wait(self._sock, silence)):
                raise self._lost(f"it was silent for {silence:g} s")
            try:
                return self._sock.recv(_CHUNK)
            except BlockingIOError:
                continue
            except OSError as error:
                raise self._lost(f"the connection broke ({error.strerror})") from error

    def _event(self, silence: float) -> Steps[h11.Event]:
        while True:
            try:
                event = self._http.next_event()
            except h11.RemoteProtocolError as error:
                raise self._lost(f"it ended in the middle ({error})") from error
            if event is not h11.NEED_DATA:
                # PAUSED cannot be: nothing is asked before the answer to what was asked before.
                assert not isinstance(event, type)  # noqa: S101
                return event
            self._http.receive_data((yield from self.read(silence)))

    def _lost(self, why: str) -> LostError:
        return LostError(why, sent=self._sent > 0)


_open: WeakSet[Link] = WeakSet()


def _in_child() -> None:
    """A forked copy must not keep a connection open after our death: the service would wait for us."""
    for link in list(_open):
        link.close()


os.register_at_fork(after_in_child=_in_child)


def is_stream(head: h11.Response) -> bool:
    """Are events coming, rather than one document?"""
    types = [value for name, value in head.headers if name == b"content-type"]
    return head.status_code == 200 and bool(types) and types[0].startswith(EVENT_STREAM.encode())


def _encoded(http: h11.Connection, request: Request) -> bytes:
    headers = [("Host", "localhost"), ("Accept", request.accept)]
    if request.method == "POST":
        headers += [("Content-Type", request.content_type), ("Content-Length", str(len(request.body)))]
    parts: list[h11.Event] = [h11.Request(method=request.method, target=request.target, headers=headers)]
    if request.body:
        parts.append(h11.Data(data=request.body))
    return b"".join(http.send(part) or b"" for part in (*parts, h11.EndOfMessage()))
