"""What the service says of itself."""

from __future__ import annotations

from aiohttp import web

from ... import __version__
from ...journal import meta
from ...model.arguments import MAX_PAGE
from ...model.events import iso_time
from ...model.schema import schema_name
from ..requests.bodies import MAX_BODY_BYTES
from ..requests.errors import answer
from ..requests.peers import check_operator
from ..service.metrics import CONTENT_TYPE
from ..service.route import JSON, Route
from ..service.service import Call
from .openapi import served

API_VERSIONS = (1,)
_PRODUCT = "durable-supervisor"


async def info(call: Call) -> web.Response:
    """Versions, phase, limits, and who the caller is taken for."""
    service, sup = call.service, call.supervisor
    capacity, seen = sup.capacity(), call.caller.operator
    return answer(
        {
            "schema": schema_name("info"),
            "product": _PRODUCT,
            "version": __version__,
            "api_versions": list(API_VERSIONS),
            "phase": service.phase,
            "kind": service.kind,
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
                "max_concurrent_runs": capacity.max_concurrent_runs,
                "max_runs_per_owner": capacity.max_runs_per_owner,
                "max_queued_runs": capacity.max_queued_runs,
            },
            # Of all owners, so only for who may see them.
            "runs": {
                "held": capacity.held if seen else None,
                "queued": capacity.queued if seen else None,
            },
        }
    )


async def capabilities(call: Call) -> web.Response:
    """What a policy and limits come to here, for the user whose service this is."""
    return answer((await call.supervisor.capabilities()).to_dict())


async def metrics(call: Call) -> web.Response:
    """Figures of all owners, so only for who may see them."""
    check_operator(call.caller, "metrics")
    body = await call.service.metrics.render()
    return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE, "Cache-Control": "no-store"})


async def description(_: Call) -> web.Response:
    """What docs/openapi.json says."""
    headers = {"Content-Type": "application/json; charset=utf-8", "Cache-Control": "no-store"}
    return web.Response(body=served(), headers=headers)


routes = [
    Route("GET", "/v1/info", info, "Versions, limits and phase of the service", {200: "info"}),
    Route(
        "GET",
        "/v1/capabilities",
        capabilities,
        "What can be enforced of a policy and of limits, as probes found it",
        {200: "capabilities"},
    ),
    Route(
        "GET",
        "/v1/openapi.json",
        description,
        "This description",
        {200: None},
        media_type=JSON,
    ),
    Route(
        "GET",
        "/metrics",
        metrics,
        "Figures in Prometheus' text format; for the operator",
        {200: None},
        media_type="text/plain",
    ),
]
