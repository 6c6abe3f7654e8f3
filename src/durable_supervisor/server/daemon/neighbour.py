"""Is there a service on this directory already?"""

from __future__ import annotations

import os

import aiohttp

from ...model.errors import ErrorCode, Phase, SupervisorError
from ...process.places import SOCKET_NAME, pointed_to, state_directory
from ...process.short_path import short_path

_SECONDS = 5.0  # one that lives may wait for a processor first


async def refuse_if_served(state_dir: str | None, in_use: SupervisorError) -> None:
    """Raise ``STATE_DIR_IN_USE`` if its owner is a service that means to stay: it is no use to wait."""
    directory = state_directory(state_dir)
    path = pointed_to(directory) or os.path.join(directory, SOCKET_NAME)
    if await _phase(path) == "accepting":
        pid = in_use.details.get("pid")
        raise SupervisorError(
            ErrorCode.STATE_DIR_IN_USE,
            f"process {pid} serves it already, on {path}",
            phase=Phase.OPEN,
            retryable=True,
            hint=f"use that service, which every verb finds by itself; or end it first: kill {pid}",
            details={"pid": pid, "socket": path},
        ) from in_use


async def _phase(path: str) -> str | None:
    """``accepting`` or ``draining``; None where no service answers."""
    folder, name = os.path.split(path)
    try:
        with short_path(folder) as place:
            connector = aiohttp.UnixConnector(f"{place}/{name}")
            timeout = aiohttp.ClientTimeout(total=_SECONDS)
            async with (
                aiohttp.ClientSession(connector=connector, timeout=timeout) as session,
                session.get("http://localhost/v1/info") as answer,
            ):
                form = await answer.json()
                return str(form.get("phase")) if isinstance(form, dict) else None
    except (aiohttp.ClientError, OSError, ValueError):  # a TimeoutError is an OSError
        return None
