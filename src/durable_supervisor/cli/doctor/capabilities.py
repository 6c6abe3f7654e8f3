"""``capabilities``: what can be enforced here, axis by axis."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..opening.session import drive
from ..options.shared import Call, Json, Settings, SocketPath, StateDir, settings
from ..output import exit_codes, out

if TYPE_CHECKING:
    from durable_supervisor.model.capabilities import Capabilities


def capabilities(
    call: Call, json: Json = False, state_dir: StateDir = None, socket: SocketPath = None
) -> int:
    """What this machine can enforce, axis by axis.

    Each mechanism is really tried, by a process of its own that is gone afterwards.
    With --socket: where that service starts its programs.

    \b
    Example:
      dsup capabilities
    """
    shared = settings(call, json, state_dir, socket)
    return drive(_show(shared))


async def _show(shared: Settings) -> int:
    found = await _found(shared)
    if shared.json:
        out.document(found.to_dict())
    else:
        from ..rendering.tables import capabilities_table

        out.write_text(capabilities_table(found))
    return exit_codes.OK


async def _found(shared: Settings) -> Capabilities:
    if shared.socket is None:
        from durable_supervisor.supervisor.policy.capabilities import capabilities as machine

        return machine()
    from durable_supervisor.client.aio import AsyncClient

    async with await AsyncClient.connect(socket=shared.socket) as client:
        return await client.capabilities()
