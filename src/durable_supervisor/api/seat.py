"""Who answers a session: a supervisor of its own, or the service of whoever owns the directory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Literal

from ..process import forks

if TYPE_CHECKING:
    from ..client.aio import AsyncClient
    from ..client.locate import Place
    from ..server.server import Server
    from ..supervisor.supervisor import Supervisor
    from .verbs import Verbs

Role = Literal["owner", "client"]


class Seat:
    """One of the two below.  One that was left is closed when its last call has ended."""

    role: Role

    def __init__(self, answering: Verbs) -> None:
        self._answering = answering
        self._calls = 0
        self._left = False

    @asynccontextmanager
    async def asked(self) -> AsyncIterator[Verbs]:
        """Hold on to it for one call."""
        self._calls += 1
        try:
            yield self._answering
        finally:
            self._calls -= 1
            await self._close_if_idle()

    async def leave(self) -> None:
        """Nobody asks it anything new from now on."""
        self._left = True
        await self._close_if_idle()

    async def close(self) -> None:
        """Let go now.  Idempotent."""
        await self._answering.close()

    async def _close_if_idle(self) -> None:
        if self._left and not self._calls:
            await self.close()


class OwnSeat(Seat):
    """This process owns the directory; others may be served."""

    role = "owner"

    def __init__(self, supervisor: Supervisor, server: Server | None) -> None:
        super().__init__(supervisor)
        self.supervisor = supervisor
        self._server = server

    async def close(self) -> None:
        """The socket first, so that whoever is served learns of it from us, not from a lock."""
        if self._server is not None:
            await self._server.close()
        await super().close()


class ServedSeat(Seat):
    """Another process owns the directory, and its service answers."""

    role = "client"

    def __init__(self, client: AsyncClient, place: Place, *, daemon: bool) -> None:
        super().__init__(client)
        self.daemon = daemon  # one that goes may well be back in a moment
        self._place = place

    async def gone(self) -> None:
        """Return when the service has ended, or does not want to be watched any longer."""
        from ..client.locate import open_socket

        for candidate in self._place.candidates():
            try:
                watching = open_socket(candidate.path)
            except OSError:
                continue
            try:
                # Nothing is ever asked on this connection, so all that can come is its end.
                await asyncio.get_running_loop().sock_recv(watching, 1)
            except OSError:
                pass
            finally:
                forks.close_socket(watching)
            return
