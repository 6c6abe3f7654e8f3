"""``gc``: which logs of runs that are over may go, and away with them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

from durable_supervisor.model.errors import invalid

from ..opening.session import drive, owning
from ..options import parse
from ..options.declared import Option
from ..options.shared import Call, Json, Settings, SocketPath, StateDir, settings
from ..output import exit_codes, out
from .progress import progress

if TYPE_CHECKING:
    from durable_supervisor.model.collecting import GcReport

_Older = Annotated[
    str | None, Option("--older-than", metavar="TIME", help="Ended more than this ago: 30d, 12h.")
]
_Keep = Annotated[str | None, Option("--keep", metavar="N", help="Not among the N newest that are over.")]
_MaxSize = Annotated[
    str | None, Option("--max-size", metavar="SIZE", help="The oldest, until all logs fit: 10G.")
]
_Label = Annotated[str | None, Option("--label", "-l", metavar="NAME=VALUE", help="Only with it.")]
_Apply = Annotated[bool, Option("--apply", help="Do it; without it, only say what would be done.")]
_SHOWN = 20  # runs of a plan, for a person


def gc(
    call: Call,
    older_than: _Older = None,
    keep: _Keep = None,
    max_size: _MaxSize = None,
    label: _Label = None,
    apply: _Apply = False,
    json: Json = False,
    state_dir: StateDir = None,
    socket: SocketPath = None,
) -> int:
    """Collect the logs of runs that are over.

    A plan, unless --apply is given. A log goes only if every criterion given says so;
    those of open, unknown, quarantined and retryable runs never do. What is left of a
    run keeps its request id spent and its outcome known, for ever. Imported runs go as
    a whole, by the time since their import.

    \b
    Example:
      dsup gc --older-than 30d --keep 1000
      dsup gc --max-size 10G --apply
    """
    shared = settings(call, json, state_dir, socket)
    asked: dict[str, Any] = {
        "older_than": parse.positive_seconds("older_than", older_than),
        "keep": None if keep is None else parse.whole("keep", keep),
        "max_bytes": None if max_size is None else parse.size("max_size", max_size),
        "label": None if label is None else next(iter(parse.pairs("label", [label]).items())),
        "apply": apply,
    }
    if not any(asked[name] is not None for name in ("older_than", "keep", "max_bytes", "label")):
        raise invalid("gc", "needs --older-than, --keep, --max-size or --label", "all that is over: --keep 0")
    return drive(_gc(shared, asked))


async def _gc(shared: Settings, asked: dict[str, Any]) -> int:
    from durable_supervisor.supervisor.supervisor import Supervisor

    tell = progress()
    async with owning(shared) as owner:
        report = await owner.ask(
            lambda verbs: verbs.gc(**asked, tell=tell) if isinstance(verbs, Supervisor) else verbs.gc(**asked)
        )
    if shared.json:
        out.document(report.to_dict())
    else:
        _print(report)
    return exit_codes.FAILED if report.left else exit_codes.OK


def _print(report: GcReport) -> None:
    from durable_supervisor.model.quantities import plural, size

    from ..output import describe
    from ..rendering.tables import columns

    now = time.time()
    rows = [
        [
            run.run_id,
            f"{run.state}, imported" if run.imported else run.state,
            f"{describe.span(now - run.ended_ns / 1e9)} ago",
            size(run.bytes),
            "-" if describe.is_generated(run.request_id) else run.request_id,
        ]
        for run in report.runs[:_SHOWN]
    ]
    if rows:
        out.write_text(columns(["RUN", "STATE", "ENDED", "SIZE", "REQUEST"], rows))
    if report.count > len(rows):
        out.line(f"and {report.count - len(rows)} more")
    kept = ", ".join(f"{reason.replace('_', ' ')} {count}" for reason, count in report.kept.items())
    verb = "collected" if report.applied else "would collect"
    out.line(f"{verb} {plural(report.count, 'run')}, {size(report.bytes)}; kept: {kept or 'none'}")
    if report.left:
        out.note(f"files of {plural(report.left, 'run')} could not be removed; the service's log says why")
    if report.count and not report.applied:
        out.note("nothing was changed: give --apply")
