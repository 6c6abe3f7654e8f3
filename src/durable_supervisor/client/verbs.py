"""Each verb as a call: what is sent for it, and what its answer is turned into.  No I/O."""

from __future__ import annotations

import base64
import os
from collections.abc import Collection, Mapping
from typing import Final

from ..model.answers import ControlReceipt, FeedEntry, ListPage, ReconcileReport, StopReceipt
from ..model.arguments import (
    absolute,
    kinds_of,
    label_of,
    note_of,
    page_limit,
    position,
    signal_number,
    states_of,
)
from ..model.collecting import Criteria, GcReport
from ..model.command import STDIN_OPEN, Command, check_timeout
from ..model.errors import invalid, unknown_run
from ..model.forms import event_of
from ..model.ids import RUN_ID_LENGTH
from ..model.importing import ImportReport
from ..model.page import Page
from ..model.request import DEFAULT_OWNER, Queueing, StartRequest
from ..model.run import Run
from ..model.states import RunState
from ..model.view import RunView
from .request import (
    ANSWER_SECONDS,
    BYTES,
    EVENT_STREAM,
    STREAM_SECONDS,
    Call,
    Form,
    Query,
    Request,
    Resend,
    get,
    post,
    run_path,
    with_query,
)

# What becomes of a call whose connection ends before its answer.  `wait`, `follow`, `follow_feed`
# and `acknowledge` go on for as long as the client may reconnect.
RESEND: Final[Mapping[str, Resend]] = {
    "info": Resend.ONCE,
    "capabilities": Resend.ONCE,
    "inspect": Resend.ONCE,
    "list": Resend.ONCE,
    "events": Resend.ONCE,
    "feed": Resend.ONCE,
    "reconcile": Resend.ONCE,  # judging anew comes to the same
    "wait": Resend.ONCE,
    "acknowledge": Resend.ONCE,  # it counts from the beginning: said twice, it is the same
    "follow": Resend.ONCE,
    "follow_feed": Resend.ONCE,
    "start": Resend.PERSIST,
    "stop": Resend.NEVER,
    "signal": Resend.NEVER,
    "write_stdin": Resend.NEVER,
    "resize": Resend.NEVER,
    "resolve": Resend.NEVER,
    "gc": Resend.NEVER,
    "import_": Resend.ONCE,  # imported twice, it is there once
}

_NO_KIND: Final = "-"  # a filter that lets nothing pass


def start(
    request: StartRequest, queueing: Queueing, window: int | None, *, host: Mapping[str, object]
) -> Call[Run]:
    """``host``: see `host.host_facts`."""
    command = request.command
    form = {
        "command": {
            "argv": list(command.argv),
            "cwd": command.cwd,
            "env": dict(command.env),
            "secret_env": dict(command.secret_env),
            "inherit_env": list(command.inherit_env),
            "stdin": _stdin_form(command),
            "secrets": list(command.secrets),
            "pty": None if command.pty is None else command.pty.to_dict(),
            "redact_tokens": command.redact_tokens,
        },
        "request_id": request.request_id,
        "limits": request.limits.to_dict(),
        "completion": request.completion.value,
        "labels": dict(request.labels),
        "queue": queueing.queue,
        "priority": queueing.priority,
        "policy": None if request.policy is None else request.policy.to_dict(),
        "lifetime": request.lifetime.value,
        "window": window,
        "host": host,
        # The default stands for the caller's own, whatever that is called.
        **(dict(_claim(request.owner)) if request.owner != DEFAULT_OWNER else {}),
    }
    subject = {"request_id": request.request_id}
    return Call(post("start", "/v1/start", form, resend=RESEND["start"], subject=subject), Run.from_dict)


def inspect(run: str) -> Call[RunView]:
    return Call(get("inspect", _of(run, "inspect")), RunView.from_dict)


def list_runs(
    limit: int,
    before: int | None,
    states: Collection[RunState] | None,
    label: tuple[str, str] | None,
    owner: str | None,
    collected: bool = False,
) -> Call[ListPage]:
    query = [("detail", "full"), ("limit", str(page_limit(limit)))]
    if before is not None:
        query.append(("before", str(position("before", before))))
    query += [("state", state.value) for state in sorted(states_of(states) or ())]
    pair = label_of(label)
    if pair is not None:
        query.append(("label", "=".join(pair)))
    if collected:
        query.append(("collected", "true"))
    return Call(get("list", "/v1/list", [*query, *_claim(owner)]), _list_page)


def events(run: str, after: int, limit: int, kinds: Collection[str] | None, output: bool) -> Call[Page]:
    query = [("limit", str(page_limit(limit))), *_range(after, kinds, output)]
    return Call(get("events", _of(run, "events"), query), _page)


def follow(run: str, after: int, kinds: Collection[str] | None, output: bool) -> Request:
    return _stream("follow", _of(run, "follow"), _range(after, kinds, output))


def feed(after: int, limit: int, owner: str | None) -> Call[list[FeedEntry]]:
    query = [("after", str(position("after", after))), ("limit", str(page_limit(limit))), *_claim(owner)]
    return Call(get("feed", "/v1/feed", query), _feed_entries)


def follow_feed(after: int, owner: str | None) -> Request:
    query = [("after", str(position("after", after))), *_claim(owner)]
    return _stream("follow_feed", "/v1/feed/follow", query)


def wait(run: str, seconds: float) -> Call[RunView]:
    """One slice of waiting."""
    query = [("timeout", _decimal(seconds))]
    return Call(get("wait", _of(run, "wait"), query, silence=seconds + ANSWER_SECONDS), RunView.from_dict)


def stop(run: str, grace: float | None, timeout: float | None) -> Call[StopReceipt]:
    check_timeout("grace", grace)
    check_timeout("timeout", timeout)
    form = {"grace": grace, "timeout": timeout}
    return Call(_deed("stop", run, form, timeout), StopReceipt.from_dict)


def signal(run: str, signo: int | str, target: str, timeout: float) -> Call[ControlReceipt]:
    check_timeout("timeout", timeout)
    form = {"signal": signal_number(signo), "target": target, "timeout": timeout}
    return Call(_deed("signal", run, form, timeout), ControlReceipt.from_dict)


def write_stdin(run: str, piece: bytes, following: int, eof: bool, timeout: float) -> Call[ControlReceipt]:
    """One piece, of no more than the service takes at once; ``following`` bytes are to come behind it."""
    check_timeout("timeout", timeout)
    query = [("eof", "true" if eof else "false"), ("timeout", _decimal(timeout))]
    if following:
        query.append(("following", str(following)))
    request = Request(
        "write_stdin",
        "POST",
        with_query(_of(run, "write-stdin"), query),
        RESEND["write_stdin"],
        piece,
        content_type=BYTES,
        silence=timeout + ANSWER_SECONDS,
        subject={"run_id": run},
    )
    return Call(request, ControlReceipt.from_dict)


def resize(run: str, columns: int, rows: int, timeout: float) -> Call[ControlReceipt]:
    check_timeout("timeout", timeout)
    form = {"columns": columns, "rows": rows, "timeout": timeout}
    return Call(_deed("resize", run, form, timeout), ControlReceipt.from_dict)


def acknowledge(run: str, stdout: int, stderr: int) -> Call[None]:
    counts = {"stdout": position("stdout", stdout), "stderr": position("stderr", stderr)}
    return Call(_deed("acknowledge", run, counts, 0.0), lambda _: None)


def resolve(run: str, action: str, note: str) -> Call[RunView]:
    return Call(_deed("resolve", run, {"action": action, "note": note_of(note)}, None), RunView.from_dict)


def reconcile() -> Call[ReconcileReport]:
    request = post("reconcile", "/v1/reconcile", {}, resend=RESEND["reconcile"], patient=True)
    return Call(request, ReconcileReport.from_dict)


def gc(asked: Criteria, apply: bool) -> Call[GcReport]:
    """A plan may be asked for twice; what was done is told once."""
    resend = RESEND["gc"] if apply else Resend.ONCE
    form = {**asked.to_dict(), "apply": apply}
    return Call(post("gc", "/v1/gc", form, resend=resend, patient=True), GcReport.from_dict)


def import_(bundle: str | os.PathLike[str]) -> Call[ImportReport]:
    """Its path as seen from here, which is to be the service's view of the same file."""
    form = {"bundle": absolute("bundle", bundle)}
    request = post("import_", "/v1/import", form, resend=RESEND["import_"], patient=True)
    return Call(request, ImportReport.from_dict)


def is_full_id(run: str) -> bool:
    """A run's whole id, which will not come to mean two runs while a call goes on."""
    return len(_known(run)) == RUN_ID_LENGTH


def _of(run: str, verb: str) -> str:
    return run_path(_known(run), verb)


def _known(run: str) -> str:
    """Something that may be a run id or the beginning of one; nothing else is put into a path."""
    if not isinstance(run, str):
        raise invalid("run", "must be a run id, or the beginning of one", "run.id of what start answered")
    if not (run.isascii() and run.isalnum() and len(run) <= RUN_ID_LENGTH):
        raise unknown_run(run)
    return run


def _deed(verb: str, run: str, form: Form, timeout: float | None) -> Request:
    """``timeout``: the service's own bound for it; None where it has none, or one that only it knows."""
    return post(
        verb,
        _of(run, verb),
        form,
        resend=RESEND[verb],
        silence=(timeout or 0.0) + ANSWER_SECONDS,
        patient=timeout is None,
        subject={"run_id": run},
    )


def _stream(verb: str, target: str, query: Query) -> Request:
    target = with_query(target, query)
    return Request(verb, "GET", target, RESEND[verb], accept=EVENT_STREAM, silence=STREAM_SECONDS)


def _range(after: int, kinds: Collection[str] | None, output: bool) -> list[tuple[str, str]]:
    query = [("after", str(position("after", after)))]
    wanted = kinds_of(kinds)
    if wanted is not None:
        query += [("kind", kind) for kind in sorted(wanted) or [_NO_KIND]]
    return query if output else [*query, ("output", "false")]


def _decimal(seconds: float) -> str:
    return f"{seconds:.6f}"


def _claim(owner: str | None) -> list[tuple[str, str]]:
    """``owner`` or ``owner/namespace``, as the journal has them in one word."""
    if owner is None:
        return []
    name, slash, namespace = owner.partition("/")
    return [("owner", name), ("namespace", namespace if slash else "default")]


def _stdin_form(command: Command) -> object:
    stdin = command.stdin
    if stdin is None or stdin == STDIN_OPEN:
        return stdin
    return {"base64": base64.b64encode(bytes(stdin)).decode("ascii")}


def _list_page(form: Form) -> ListPage:
    return ListPage([RunView.from_dict(entry) for entry in form["runs"]], form["next_before"])


def _page(form: Form) -> Page:
    found = [event_of(entry) for entry in form["events"]]
    return Page(found, form["next_after"], form["head"], form["generation"], form["end"])


def _feed_entries(form: Form) -> list[FeedEntry]:
    return [FeedEntry.from_dict(entry) for entry in form["entries"]]
