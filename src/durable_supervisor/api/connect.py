"""The way in for an application that leaves owning the state directory to a service."""

from __future__ import annotations

import os

from ..client.aio import AsyncClient, Connecting


def connect(
    state_dir: str | os.PathLike[str] | None = None, *, socket: str | os.PathLike[str] | None = None
) -> Connecting:
    """A client of the service of ``state_dir``, or of the one at ``socket``: enter it, or await it.

    Without either, ``$DURABLE_SUPERVISOR_SOCKET`` counts, then the default state directory.  It
    never takes the service's place; a service that comes back within half a minute is met again.

    Raises ``SERVICE_UNAVAILABLE``, ``UNSUPPORTED_API_VERSION``, ``PEER_DENIED``.
    """
    return AsyncClient.connect(state_dir, socket=socket)
