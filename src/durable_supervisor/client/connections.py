"""The connections of one client: made to a service that was made sure of, kept while idle, ended together."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from ..model.errors import ErrorCode, Phase, SupervisorError
from . import failures
from .answer import value_of
from .failures import LostError
from .info import INFO, ServiceInfo, check_version
from .link import Link
from .locate import Candidate, Place
from .steps import Steps, pause

_IDLE_SECONDS: Final = 20.0  # well before the service would end it
_MAX_IDLE: Final = 8
_CROWDED_SECONDS: Final = 10.0  # for a service to accept a connection that waits in its queue
_CROWDED_PAUSE: Final = 0.02


class Connections:
    """Threads may share it: taking and giving back are single operations on a list or a set.

    Everything here raises ``SUPERVISOR_CLOSED`` after `close`, and ``FORKED_COPY`` in a forked copy.
    """

    def __init__(self, place: Place) -> None:
        self.place = place
        self.info: ServiceInfo | None = None  # of the service that was reached last
        self._pid = os.getpid()
        self._closed = False
        self._idle: list[tuple[Link, float]] = []
        self._used: set[Link] = set()

    @property
    def closed(self) -> bool:
        return self._closed

    def check_open(self) -> None:
        if os.getpid() != self._pid:
            raise failures.forked()
        if self._closed:
            raise failures.closed()

    def close(self) -> None:
        """End all connections; calls under way learn of it.  Idempotent; nothing in a forked copy."""
        if os.getpid() != self._pid:
            return
        self._closed = True
        while self._idle:
            self._idle.pop()[0].close()
        for link in list(self._used):
            link.hang_up()

    def take(self) -> Link | None:
        """An idle connection that is still good; None where there is none."""
        self.check_open()
        while True:
            try:
                link, since = self._idle.pop()
            except IndexError:
                return None
            if time.monotonic() - since < _IDLE_SECONDS and link.is_quiet():
                return link
            link.close()

    @contextmanager
    def using(self, link: Link) -> Iterator[None]:
        """Kept for the next call if this one ends well; or else closed, for half-read it is of no use."""
        with self._open(link):
            yield
        if link.finish():
            self.keep(link)
        else:
            link.close()

    def keep(self, link: Link) -> None:
        """For the next call."""
        if self._closed or len(self._idle) >= _MAX_IDLE:
            link.close()
            return
        self._idle.append((link, time.monotonic()))
        if self._closed:  # by another thread, after we had looked
            self.close()

    def dial(self) -> Steps[Link]:
        """A new connection, to a service of this directory that speaks our version.

        Raises `LostError` where there is none, ``UNSUPPORTED_API_VERSION``, ``PEER_DENIED``.
        """
        self.check_open()
        first = None
        for candidate in self.place.candidates():
            try:
                link = yield from _connect(candidate.path)
                with self._open(link):
                    yield from self._greet(link, candidate)
                return link
            except LostError as lost:
                first = first or lost
        assert first is not None  # noqa: S101
        raise LostError(first.why) from first  # with nothing sent but the greeting

    def _greet(self, link: Link, candidate: Candidate) -> Steps[None]:
        """Who is it?  A start that is sent again must not reach the service of another directory,
        which cannot know that it was carried out already."""
        info = value_of(INFO, (yield from link.exchange(INFO.request)))
        check_version(info)
        moved = self.info is not None and self.info.directory_id != info.directory_id
        if moved or (candidate.pointed and info.state_dir != self.place.state_dir):
            raise LostError(f"another state directory's service listens at {candidate.path}")
        if not link.finish():
            raise LostError(f"the service at {candidate.path} keeps no connection open")
        self.info = info

    @contextmanager
    def _open(self, link: Link) -> Iterator[None]:
        """Closed when the body fails; ended early when the client is closed."""
        self._used.add(link)
        try:
            self.check_open()  # closed a moment ago, it would not be hung up any more
            yield
        except BaseException:
            link.close()
            raise
        finally:
            self._used.discard(link)


def _connect(path: str) -> Steps[Link]:
    """Raises `LostError` where nobody listens, ``PEER_DENIED``."""
    waited = 0.0
    while True:
        try:
            return Link(path)
        except BlockingIOError as error:
            if waited >= _CROWDED_SECONDS:
                raise LostError(f"too many wait to be let in at {path}") from error
        except PermissionError as error:
            raise SupervisorError(
                ErrorCode.PEER_DENIED,
                f"you may not connect to the socket at {path}",
                phase=Phase.CONNECT,
                hint="its operator can admit you: serve --socket-mode, --socket-group, --caller",
                details={"socket": path},
            ) from error
        except OSError as error:
            raise LostError(f"{path}: {error.strerror or error}") from error
        yield from pause(_CROWDED_PAUSE)
        waited += _CROWDED_PAUSE
