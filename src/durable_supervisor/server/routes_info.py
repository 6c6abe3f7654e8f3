"""What the service says of itself."""

from __future__ import annotations

from aiohttp import web

from .. import __version__
from ..journal import meta
from ..journal.figures import read_figures
from ..model.arguments import MAX_PAGE
from ..model.events import iso_time
from ..model.schema import schema_name
from .bodies import MAX_BODY_BYTES
from .errors import answer
from .metrics import CONTENT_TYPE
from .peers import check_operator
from .route import Route
from .service import Call

API_VERSIONS = (1,)
_PRODUCT = "durable-supervisor"


async def info(call: Call) -> web.Response:
    """Versions, phase, limits, and who the caller is taken for."""
    service, sup = call.service, call.supervisor
    return answer(
        {
            "schema": schema_name("info"),
            "product": _PRODUCT,
            "version": __version__,
            "api_versions": list(API_VERSIONS),
            "phase": service.phase,
            "pid": service.pid,
            "state_dir": sup.state_dir,
            "directory_id": await sup.journal.read(meta.directory_id) or "",
            "started_at": iso_time(service.started_ns),
            "caller": {
                "principal": call.caller.principal,
                "owner": call.caller.owner,
                "namespace": call.caller.namespace,
            },
            "limits": {
                "max_body_bytes": MAX_BODY_BYTES,
                "max_page": MAX_PAGE,
                "max_connections": service.max_connections,
                "max_concurrent_runs": None,
                "max_runs_per_owner": None,
                "max_queued_runs": None,
            },
            "runs": await _runs(call),
        }
    )


async def _runs(call: Call) -> dict[str, int | None]:
    """Of all owners, so only for who may see them."""
    if not call.caller.operator:
        return {"held": None, "queued": None}
    by_state = (await call.supervisor.journal.read(read_figures)).by_state
    queued = by_state.pop("queued", 0)
    return {"held": sum(by_state.values()), "queued": queued}


async def metrics(call: Call) -> web.Response:
    """Figures of all owners, so only for who may see them."""
    check_operator(call.caller, "metrics")
    body = await call.service.metrics.render()
    return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE, "Cache-Control": "no-store"})


routes = [
    Route("GET", "/v1/info", info, "Versions, limits and phase of the service", {200: "info"}),
    Route(
        "GET",
        "/metrics",
        metrics,
        "Figures in Prometheus' text format; for the operator",
        {200: None},
        media_type="text/plain",
    ),
]
