"""``attach``: a WebSocket for a viewer of one run."""

from __future__ import annotations

from aiohttp import web

from ...model.errors import ErrorCode, invalid
from ..requests import queries
from ..service.route import OF_A_RUN, RUN, Route
from ..service.service import Call
from .viewer import Viewer, web_socket


async def attach(call: Call) -> web.StreamResponse:
    """Events from the cursor on, and the input, until the run is over or either side leaves."""
    run_id = await call.run()
    query, request = call.query, call.request
    after, size = int(query.get("after", 0)), _size(query.get("columns"), query.get("rows"))
    # A wrong cursor gets a status of its own, which a WebSocket that has begun could not have.
    await call.supervisor.events(run_id, after=after, limit=1)
    socket = web_socket()
    if not socket.can_prepare(request):
        raise invalid("Upgrade", "must be websocket", "attach is a WebSocket; /follow is plain HTTP")
    with call.place_to_wait():
        await socket.prepare(request)
        if request.transport is None:
            raise ConnectionResetError
        async with call.supervisor.attach(run_id, after=after) as attached:
            with call.service.follower():
                viewer = Viewer(call.service, socket, request.transport, attached)
                await viewer.serve(
                    writer=query.get("writer", "none"), size=size, events=query.get("events", True)
                )
    return socket


def _size(columns: int | None, rows: int | None) -> tuple[int, int] | None:
    if columns is None and rows is None:
        return None
    if columns is None or rows is None:
        raise invalid("rows" if rows is None else "columns", "is missing", "give both, or neither")
    return columns, rows


routes = [
    Route(
        "GET",
        f"{RUN}/attach",
        attach,
        "A WebSocket for a viewer: events as they come, and the input of the run (see docs/http.md)",
        {101: None},
        query=(
            queries.AFTER,
            queries.one_of(
                "writer",
                "the input lease, at once: not at all, if nobody has it, or from whoever has it",
                "none",
                "ask",
                "steal",
            ),
            queries.EVENTS,
            queries.size("columns", "the viewer's size, which the run's terminal gets with the lease"),
            queries.size("rows", "the same"),
        ),
        failures=(*OF_A_RUN, ErrorCode.CURSOR_AHEAD, ErrorCode.RUN_COLLECTED),
    ),
]
