"""From a listening socket to connections, within bounds.

With a reader of our own instead of a task in `loop.sock_accept`: cancelling that loses a
connection which it has accepted already.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Mapping

from aiohttp import web

from ...model.errors import SupervisorError
from ...process import forks
from ...supervisor.loop.logs import logger
from ..requests.errors import crowded
from ..requests.peers import Caller, denied
from ..service.service import Service
from .connections import MAX_REFUSALS, REFUSAL_SECONDS, Connection, Held, decide, peer_uid

_SHORT_OF = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_SHORTAGE_PAUSE = 0.1
_GRACE_SECONDS = 0.1  # a connection this young is not idle: its request may be on the way
_AT_ONCE = 1024  # no more than a backlog holds; then it is others' turn in the loop


class Acceptor:
    """Takes in connections and keeps track of those that are open."""

    def __init__(self, service: Service, manager: web.Server) -> None:
        self._service = service
        self._manager = manager
        self.stall = service.stall
        self._callers: Mapping[int, Caller] = service.callers
        self._open: dict[Connection, int] = {}  # with its uid; from when it is decided about
        self._refused: set[Connection] = set()  # kept for a moment, to be told why
        self._coming: set[asyncio.Task[None]] = set()  # accepted, not yet connections
        self._pause: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()

    @property
    def connections(self) -> int:
        return len(self._open)

    def listen(self, listener: socket.socket) -> None:
        """Take in whoever comes, until `leave`."""
        self._loop.add_reader(listener, self._accept, listener)

    def leave(self, listener: socket.socket) -> None:
        """Take in who has come by now, and nobody after.  The socket stays the caller's to close."""
        if self._pause is not None:
            self._pause.cancel()
            self._pause = None
        self._loop.remove_reader(listener)
        self._accept(listener)

    async def settled(self) -> None:
        """Wait until everybody who was accepted is a connection, which can be closed as such."""
        if self._coming:
            await asyncio.wait(set(self._coming))

    def _accept(self, listener: socket.socket) -> None:
        for _ in range(_AT_ONCE):
            try:
                with forks.no_fork:  # a copy of the host must not keep it open: the client would wait for us
                    connection, _ = listener.accept()
                    forks.guard(connection.fileno())
            except OSError as error:
                if error.errno in _SHORT_OF:
                    self._pause_accepting(listener)
                return
            connection.setblocking(False)
            task = self._loop.create_task(self._take_in(connection))
            self._coming.add(task)
            task.add_done_callback(self._coming.discard)

    def _pause_accepting(self, listener: socket.socket) -> None:
        """Short of descriptors: an idle connection goes, and the loop does not spin meanwhile."""
        self._close_longest_idle()
        if self._loop.remove_reader(listener):
            self._pause = self._loop.call_later(_SHORTAGE_PAUSE, self.listen, listener)

    async def _take_in(self, connection: socket.socket) -> None:
        try:
            uid = peer_uid(connection)
        except OSError:
            forks.close_socket(connection)
            return
        refusal = self._refusal(uid)
        if refusal is not None and len(self._refused) >= MAX_REFUSALS:
            forks.close_socket(connection)  # without a word: there are too many of them
            return
        protocol = _Counted(self, self._manager, self._callers.get(uid), refusal)
        # At once: of many who come together, each is decided about before the first is connected.
        self._count(protocol, uid)
        try:
            await self._loop.connect_accepted_socket(lambda: protocol, connection)
        except (OSError, ValueError):
            forks.close_socket(connection)  # it has gone already
            self.closed(protocol)

    def _refusal(self, uid: int) -> SupervisorError | None:
        """Why ``uid`` gets no further connection, if so; an idle one may have to go for it."""
        if uid not in self._callers:
            return denied(uid)
        most, share = self._service.max_connections, self._service.max_of_one_user
        if len(self._open) < share:
            return None
        settled = self._loop.time() - _GRACE_SECONDS
        held = {
            Held(one_uid, None if one.busy or one.idle_since > settled else one.idle_since): one
            for one, one_uid in self._open.items()
        }
        verdict = decide(held, uid, most, share)
        if verdict == "refuse":
            return crowded("connections")
        if isinstance(verdict, Held):
            self._let_go(held[verdict])
        return None

    def _close_longest_idle(self) -> None:
        idle = [one for one in self._open if not one.busy]
        if idle:
            self._let_go(min(idle, key=lambda one: one.idle_since))
        logger().warning("out_of_descriptors", connections=len(self._open))

    def _let_go(self, connection: Connection) -> None:
        self.closed(connection)
        connection.force_close()

    def _count(self, connection: Connection, uid: int) -> None:
        if connection.refusal is not None:
            self._refused.add(connection)
            # Whatever it does by then: it does not get to hold the place.
            self._loop.call_later(REFUSAL_SECONDS, connection.force_close)
            return
        self._open[connection] = uid
        self._service.metrics.connections.inc()

    def closed(self, connection: Connection) -> None:
        """A connection has ended.  Idempotent."""
        self._refused.discard(connection)
        if self._open.pop(connection, None) is not None:
            self._service.metrics.connections.dec()


class _Counted(Connection):
    """A connection that tells the acceptor of its end."""

    __slots__ = ("_acceptor", "_descriptor")

    def __init__(
        self,
        acceptor: Acceptor,
        manager: web.Server,
        caller: Caller | None,
        refusal: SupervisorError | None,
    ) -> None:
        super().__init__(manager, caller, refusal, acceptor.stall)
        self._acceptor = acceptor
        self.busy = True  # not connected yet, it cannot be closed for another

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._descriptor: int = transport.get_extra_info("socket").fileno()
        super().connection_made(transport)
        self.busy = False

    def connection_lost(self, exc: BaseException | None) -> None:
        super().connection_lost(exc)
        self._acceptor.closed(self)
        forks.release(self._descriptor)  # the transport closes it next
