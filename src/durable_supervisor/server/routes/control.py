"""Starting and controlling: one verb, one handler.

Each is done to its end even when the client vanishes: what it asked for may be
half done already, and its receipt is kept where it can ask for it again.  But a run that is
to end with its client is not begun for one that has hung up.
"""

from __future__ import annotations

import os

from aiohttp import web

from ...model.answers import ControlReceipt
from ...model.command import Command
from ...model.errors import ErrorCode, invalid
from ...model.request import Lifetime
from ...model.schema import schema_name
from ...supervisor.admission.admission import Host
from ...supervisor.admission.host import read_host, survives_unit_restart
from ...wire.requests import (
    AcknowledgeBody,
    GcBody,
    HostForm,
    ImportBody,
    ReconcileBody,
    ResizeBody,
    ResolveBody,
    SignalBody,
    StartBody,
    StopBody,
    command_of,
    limits_of,
    policy_of,
)
from ..requests import queries
from ..requests.errors import answer, shutting_down
from ..requests.peer_process import hung_up, peer_process
from ..requests.peers import check_operator, claimed_owner
from ..service.route import BYTES, OF_A_RUN, RUN, Route
from ..service.service import Call

_STDIN_SECONDS = 30.0


async def start(call: Call) -> web.Response:
    """Journal a request and start it; the same request id again answers with its run."""
    body = call.form(StartBody)
    owner = claimed_owner(call.caller, body.owner, body.namespace)
    if call.service.phase == "draining":
        raise shutting_down()
    command = command_of(body.command)
    run = await call.service.whole(
        call.supervisor.start(
            command,
            request_id=body.request_id,
            limits=limits_of(body.limits),
            completion=body.completion,
            labels=body.labels,
            owner=owner,
            queue=body.queue,
            priority=body.priority,
            policy=policy_of(body.policy),
            lifetime=body.lifetime,
            window=body.window,
            host=_host(body, command, call),
        )
    )
    return answer(run.to_dict(), 200 if run.admission == "existing" else 201)


def _host(body: StartBody, command: Command, call: Call) -> Host:
    """The caller's facts, else the service's own; but who the caller is, the kernel says."""
    told = read_host(command) if body.host is None else _told_host(body.host)
    if body.lifetime is Lifetime.DETACHED:
        return told._replace(process=None)
    return told._replace(process=peer_process(call.request), hung_up=lambda: hung_up(call.request))


def _told_host(form: HostForm) -> Host:
    """As the caller tells them; whether a restart of our own unit would harm the run is known here alone."""
    for name, value in form.environ.items():
        if not name or "=" in name or "\0" in name or "\0" in value:
            raise invalid("host.environ", "has a name or a value that no environment can have")
    if (not form.cwd.startswith("/") and form.cwd) or "\0" in form.cwd:
        raise invalid("host.cwd", "must be an absolute path, or empty where there is none")
    cwd = os.path.normpath(form.cwd) if form.cwd else ""
    return Host(form.environ, cwd, form.umask, form.nested_in, survives_unit_restart())


async def stop(call: Call) -> web.Response:
    """End the whole tree of a run."""
    body = call.form(StopBody)
    run_id = await call.run()
    stopping = call.supervisor.stop(run_id, grace=body.grace, timeout=body.timeout)
    return answer((await call.service.whole(stopping)).to_dict())


async def signal(call: Call) -> web.Response:
    """Send a signal to the leader or to the whole tree."""
    body = call.form(SignalBody)
    run_id = await call.run()
    return _control(
        await call.service.whole(
            call.supervisor.signal(run_id, body.signal, target=body.target, timeout=body.timeout)
        )
    )


async def write_stdin(call: Call) -> web.Response:
    """Write the body to the program's stdin."""
    run_id = await call.run()
    writing = call.supervisor.write_piece(
        run_id,
        call.body,
        following=call.query.get("following", 0),
        eof=call.query.get("eof", False),
        timeout=call.query.get("timeout", _STDIN_SECONDS),
    )
    return _control(await call.service.whole(writing))


async def resize(call: Call) -> web.Response:
    """Give the run's terminal a new size."""
    body = call.form(ResizeBody)
    run_id = await call.run()
    resizing = call.supervisor.resize(run_id, body.columns, body.rows, timeout=body.timeout)
    return _control(await call.service.whole(resizing))


async def acknowledge(call: Call) -> web.Response:
    """More of its output was consumed: a program that is held back may go on."""
    body = call.form(AcknowledgeBody)
    await call.supervisor.acknowledge(await call.run(), stdout=body.stdout, stderr=body.stderr)
    return answer({})


async def resolve(call: Call) -> web.Response:
    """An operator's word on an unknown or quarantined run."""
    body = call.form(ResolveBody)
    run_id = await call.run()
    with call.place_to_wait():
        seen = await call.service.whole(
            call.supervisor.resolve(run_id, body.action, note=body.note, by_uid=call.caller.uid)
        )
    return answer(seen.to_dict())


async def reconcile(call: Call) -> web.Response:
    """Judge every open and quarantined run from its evidence, now."""
    check_operator(call.caller, "reconcile")
    report = await call.service.whole(call.supervisor.reconcile())
    return answer({"schema": schema_name("reconcile"), **report.to_dict()})


def _control(receipt: ControlReceipt) -> web.Response:
    return answer({"schema": schema_name("control"), **receipt.to_dict()})


_UNCERTAIN = (ErrorCode.NOT_RUNNING, ErrorCode.NOT_CONFIRMED)


async def gc(call: Call) -> web.Response:
    """The logs of runs that are over: which may go, or away with them."""
    check_operator(call.caller, "gc")
    body = call.form(GcBody)
    label = None if body.label is None else (body.label[0], body.label[1])
    collecting = call.supervisor.gc(
        older_than=body.older_than,
        keep=body.keep,
        max_bytes=body.max_bytes,
        label=label,
        apply=body.apply,
    )
    return answer((await call.service.whole(collecting)).to_dict())


async def import_(call: Call) -> web.Response:
    """Take the run in a bundle in, to be read here."""
    check_operator(call.caller, "import")
    path = call.form(ImportBody).bundle
    if not os.path.isabs(path):
        raise invalid("bundle", "must be an absolute path: the service has a working directory of its own")
    return answer((await call.service.whole(call.supervisor.import_(path, by_uid=call.caller.uid))).to_dict())


routes = [
    Route(
        "POST",
        "/v1/start",
        start,
        "Journal a request and start it; 201 when this call did, 200 when the request id has a run already",
        {201: "start", 200: "start"},
        body=StartBody,
        failures=(
            ErrorCode.OWNER_MISMATCH,
            ErrorCode.IDEMPOTENCY_CONFLICT,
            ErrorCode.CAPACITY_EXHAUSTED,
            ErrorCode.ENFORCEMENT_REFUSED,
            ErrorCode.FRAME_TOO_LARGE,
            ErrorCode.SHUTTING_DOWN,
            ErrorCode.NO_SPACE,
            ErrorCode.JOURNAL_BEHIND,
            ErrorCode.JOURNAL_MISMATCH,
        ),
    ),
    Route(
        "POST",
        f"{RUN}/stop",
        stop,
        "End the whole tree of a run: TERM, grace, KILL; answers when it is over",
        {200: "stop"},
        body=StopBody,
        failures=(*OF_A_RUN, *_UNCERTAIN),
    ),
    Route(
        "POST",
        f"{RUN}/signal",
        signal,
        "Send a signal to the program's leader, or to its whole tree",
        {200: "control"},
        body=SignalBody,
        failures=(*OF_A_RUN, *_UNCERTAIN),
    ),
    Route(
        "POST",
        f"{RUN}/write-stdin",
        write_stdin,
        "Write the body to the program's open stdin; answers when the bytes are in its pipe",
        {200: "control"},
        query=(queries.EOF_AFTER, queries.FOLLOWING, queries.TIMEOUT),
        body=BYTES,
        failures=(
            *OF_A_RUN,
            *_UNCERTAIN,
            ErrorCode.STDIN_CLOSED,
            ErrorCode.WRITER_BUSY,
            ErrorCode.FRAME_TOO_LARGE,
        ),
    ),
    Route(
        "POST",
        f"{RUN}/resize",
        resize,
        "Give the run's terminal a new size",
        {200: "control"},
        body=ResizeBody,
        failures=(*OF_A_RUN, *_UNCERTAIN, ErrorCode.WRITER_BUSY),
    ),
    Route(
        "POST",
        f"{RUN}/acknowledge",
        acknowledge,
        "Say how much of a run's output was consumed: for one with a window; the answer is empty",
        {200: None},
        body=AcknowledgeBody,
        failures=(*OF_A_RUN, ErrorCode.NOT_CONFIRMED),
    ),
    Route(
        "POST",
        f"{RUN}/resolve",
        resolve,
        "An operator's audited word on an unknown or quarantined run",
        {200: "inspect"},
        body=ResolveBody,
        failures=(*OF_A_RUN, ErrorCode.NOT_RESOLVABLE, ErrorCode.NOT_CONFIRMED),
    ),
    Route(
        "POST",
        "/v1/reconcile",
        reconcile,
        "Judge every open and quarantined run from its evidence, now; for the operator",
        {200: "reconcile"},
        body=ReconcileBody,
    ),
    Route(
        "POST",
        "/v1/gc",
        gc,
        "Which logs of runs that are over may go; with apply they go; for the operator",
        {200: "gc"},
        body=GcBody,
        failures=(ErrorCode.NO_SPACE, ErrorCode.STATE_DIR_REFUSED),
    ),
    Route(
        "POST",
        "/v1/import",
        import_,
        "Take the run in a bundle in, to be read here as another directory's; for the operator",
        {200: "import"},
        body=ImportBody,
        failures=(ErrorCode.IMPORT_CONFLICT, ErrorCode.NO_SPACE, ErrorCode.STATE_DIR_REFUSED),
    ),
]
