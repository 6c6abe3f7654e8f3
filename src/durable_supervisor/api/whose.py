"""Who answers a call: the supervisor that it names, or the process's own."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Final, cast

from ..model.errors import SupervisorError, invalid
from ..supervisor.supervisor import Supervisor
from .asked import Options
from .errand import Elsewhere, send
from .session import Session
from .shared import shared

if TYPE_CHECKING:
    from ..client.aio import AsyncClient
    from ..client.sync import Client
    from .verbs import Verbs


_CLIENT: Final = "durable_supervisor.client"


async def verbs_of(options: Options) -> Verbs:
    """For a task.  Raises ``INVALID_REQUEST``, and what `open` does."""
    given = options.get("supervisor")
    if given is None:
        loop = shared().loop()
        return cast("Verbs", Elsewhere(await send(shared().session(), loop), loop))
    if isinstance(given, Supervisor | Session) and given._loop is not asyncio.get_running_loop():
        hint = "open one in this loop, or call durable_supervisor.sync from another thread"
        raise invalid("supervisor", "lives in another loop", hint)
    if isinstance(given, Supervisor | Session | Elsewhere) or is_async_client(given):
        return cast("Verbs", given)
    raise not_a_supervisor()


def is_async_client(given: object) -> bool:
    """Without importing a client where none is used: one that exists has been imported."""
    module = sys.modules.get(f"{_CLIENT}.aio")
    return module is not None and isinstance(given, module.AsyncClient)


def is_client(given: object) -> bool:
    """An `AsyncClient` or a `Client`."""
    module = sys.modules.get(f"{_CLIENT}.base")
    return module is not None and isinstance(given, module.Base)


def twin(client: Client | AsyncClient) -> AsyncClient:
    """Another client of the same service, for another loop."""
    from ..client.aio import AsyncClient
    from ..client.base import RECONNECT_SECONDS

    return AsyncClient(client._connections.place, RECONNECT_SECONDS)


def not_a_supervisor() -> SupervisorError:
    hint = "a Client is for durable_supervisor.sync; an Observer starts nothing"
    return invalid("supervisor", "must be a Supervisor, a Session or an AsyncClient", hint)
