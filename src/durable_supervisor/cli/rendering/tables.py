"""Tables for people, from the same documents that ``--json`` prints.

rich is imported here and in `listing`, and nowhere else.  Every text is escaped first and passed
as `Text`, never as markup.
"""

from __future__ import annotations

import io
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from durable_supervisor.model.confining import enforcement_words, limit_words, policy_words
from durable_supervisor.model.quantities import size

from ..output import describe, out, style
from ..output.describe import Form
from ..output.escape import escape_text

if TYPE_CHECKING:
    from rich.console import RenderableType

    from durable_supervisor.model.capabilities import Capabilities

Fact = tuple[str, str]  # a name and a value; without a value it is left out
_TREE_HEADER = ["PID", "PARENT", "STATUS", "CPU", "MEMORY", "NAME"]
_AXIS_HEADER = ["AXIS", "ASKED BY", "ENFORCED", "BY", "WHY NOT IN FULL"]
_LEAST_FOLDED = 16  # columns that text needs to be read when it is folded
_WIDE = 4096  # into a pipe nothing is cut: the reader may be grep


def run_table(form: Form) -> str:
    """Everything about one run: one fact a line, then its live tree."""
    tree = _tree(form.get("live"))
    facts = [
        *_what_it_is(form),
        *_what_was_asked(form),
        *_what_became_of_it(form),
        *_what_to_know(form, tree),
    ]
    return fact_table(facts) + (columns(_TREE_HEADER, tree) if tree else "")


def _what_it_is(form: Form) -> list[Fact]:
    return [
        ("run", str(form.get("run_id"))),
        ("state", describe.state_word(form)),
        ("request", f"{form.get('request_id')} (owner {form.get('owner')})"),
        ("attempt", str(form.get("attempt"))),
        ("command", describe.command_line(form.get("argv"))),
        ("directory", str(form.get("cwd") or "-")),
        ("created", describe.local_time(form.get("created_at"))),
        ("took", took(form)),
        ("collected", _collected(form)),
        ("imported", _imported(form)),
        ("program", _process(form.get("program"))),
        ("worker", _worker(form)),
    ]


def _what_was_asked(form: Form) -> list[Fact]:
    return [
        ("terminal", _terminal(form.get("pty"))),
        ("limits", _limits(form.get("limits"), form.get("completion"))),
        ("lifetime", "ends with the process that asked for it" if form.get("lifetime") == "scope" else ""),
        ("policy", policy_words(form.get("policy"))),
        *_enforced(form),
        ("labels", _flat(form.get("labels"))),
    ]


def _what_became_of_it(form: Form) -> list[Fact]:
    finished = form.get("state") == "finished"  # then the receipt is the evidence
    return [
        ("stopped", _stopped(form.get("receipt"))),
        ("output", _output(form.get("receipt"))),
        ("events", str(form.get("head") or 0)),
        ("reason", "" if finished else str(form.get("reason") or "")),
        ("evidence", "" if finished else _flat(form.get("evidence"))),
        ("resolution", _flat(form.get("resolution"))),
        ("log health", _flat(form.get("log_health"))),
        ("inside run", str(form.get("nested_in") or "")),
        ("retryable", "yes: send the same request id again" if form.get("retryable") else ""),
    ]


def _what_to_know(form: Form, tree: list[list[str]]) -> list[Fact]:
    spared = form.get("survives_unit_restart") is not False or form.get("imported")
    unit = "a restart of the systemd unit it was started in ends it; see 'doctor'"
    return [
        ("next", _next(form)),
        ("beware", "" if spared else unit),
        ("live", _live(form.get("live"), len(tree))),
    ]


def _live(live: object, processes: int) -> str:
    if not isinstance(live, Mapping):
        return ""
    cpu, memory = _cpu(live.get("cpu_seconds")), size(live.get("rss_bytes"))
    return f"{processes} process{'' if processes == 1 else 'es'}, CPU {cpu}, memory {memory}"


def _collected(form: Form) -> str:
    since = form.get("collected_at")
    return f"{describe.local_time(since)}: its log is gone, and its command with it" if since else ""


def _imported(form: Form) -> str:
    mark = form.get("imported")
    if not isinstance(mark, Mapping):
        return ""
    source = mark.get("directory_id") or "a directory that its bundle does not name"
    return escape_text(f"{describe.local_time(mark.get('imported_at'))}, from {source}: it can only be read")


def _next(form: Form) -> str:
    """What an operator may do about a run whose end is not known."""
    if form.get("imported"):
        return ""
    run_id, state = form.get("run_id"), form.get("state")
    if state == "quarantined":
        return (
            f"'dsup resolve {run_id}' with --wait, --kill or --accept; docs/verdicts.md explains the reason"
        )
    if state == "unknown" and not form.get("resolution"):
        return "look at what it did; a new request id runs it again ('dsup resolve --accept' keeps a note)"
    return ""


def request_table(form: Form) -> str:
    """What ``start --dry-run`` would ask."""
    return fact_table(
        [
            ("request", str(form.get("request_id") or "(made at the start)")),
            ("command", describe.command_line(form.get("argv"))),
            ("directory", str(form.get("cwd"))),
            ("env", ", ".join(_words(form.get("env")))),
            ("secret env", ", ".join(_words(form.get("secret_env")))),
            ("inherit env", ", ".join(_words(form.get("inherit_env")))),
            ("stdin", _flat(form.get("stdin")) or str(form.get("stdin") or "empty")),
            ("terminal", _terminal(form.get("pty"))),
            ("limits", _limits(form.get("limits"), form.get("completion"))),
            ("policy", policy_words(form.get("policy"))),
            ("labels", _flat(form.get("labels"))),
            ("", "dry run: nothing was started"),
        ]
    )


def capabilities_table(found: Capabilities) -> str:
    """One row for each thing that may be asked for, then which probes could not tell."""
    rows = [
        [one.axis, one.asked, one.applied, one.mechanism or "-", one.reason or ""]
        for one in found.capabilities
    ]
    failed = [(f"probe {name}", f"could not tell: {why}") for name, why in found.probes["failed"].items()]
    return columns(_AXIS_HEADER, rows) + (fact_table(failed) if failed else "")


def _terminal(pty: object) -> str:
    return f"{pty.get('columns')}x{pty.get('rows')}, {pty.get('term')}" if isinstance(pty, Mapping) else ""


def fact_table(facts: Iterable[Fact]) -> str:
    """Names and values in two columns; empty values are left out."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in facts:
        if value and value != "-":
            table.add_row(Text(escape_text(name)), Text(escape_text(value)))
    return rendered(table)


def columns(header: list[str], rows: list[list[str]]) -> str:
    """A table whose last column folds; where a terminal has no room for the others, a block a row."""
    from rich.cells import cell_len
    from rich.table import Table
    from rich.text import Text

    cells = [[escape_text(cell) for cell in row] for row in rows]
    widths = [max(map(cell_len, column)) for column in zip(header, *cells, strict=True)]
    if sum(widths[:-1]) + 2 * (len(widths) - 1) + min(widths[-1], _LEAST_FOLDED) > room():
        names = [name.lower() for name in header]
        return "\n".join(fact_table(zip(names, row, strict=True)) for row in cells)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in header[:-1]:
        table.add_column(name, no_wrap=True)
    table.add_column(header[-1], overflow="fold")
    for row in cells:
        table.add_row(*map(Text, row))
    return rendered(table)


def rendered(renderable: RenderableType) -> str:
    """What rich makes of it, for stdout: as wide as the terminal, with colours where those are wanted."""
    from rich.console import Console

    terminal = out.is_terminal(out.STDOUT)
    console = Console(
        file=io.StringIO(),
        force_terminal=terminal,
        color_system="standard" if style.wanted(out.STDOUT) else None,
        width=room(),
        highlight=False,
        markup=False,
        emoji=False,
    )
    with console.capture() as captured:
        console.print(renderable)
    # rich pads every row to the full width, which only makes noise in a pipe.
    return "".join(row.rstrip() + "\n" for row in captured.get().splitlines())


def room() -> int:
    """Columns of stdout's terminal, or what `COLUMNS` says; of a pipe there is no end."""
    import shutil  # a line about a start does without it

    return shutil.get_terminal_size().columns if out.is_terminal(out.STDOUT) else _WIDE


def took(form: Form) -> str:
    """How long it took, or has been going on."""
    receipt = form.get("receipt")
    if isinstance(receipt, Mapping) and isinstance(duration := receipt.get("duration"), int | float):
        return describe.span(float(duration))
    began = describe.parse_time(form.get("created_at"))
    if began is None or not describe.is_open(form):
        return "-"
    return describe.span(time.time() - began)


def _worker(form: Form) -> str:
    """Not for `kill`: a process that had a run may be at another one."""
    worker = _process(form.get("worker"))
    return worker if not worker or describe.is_open(form) else f"{worker}; maybe at another run by now"


def _process(identity: object) -> str:
    if not isinstance(identity, Mapping):
        return ""
    return f"pid {identity.get('pid')}{_since(identity.get('create_time'))}"


def _since(moment: object) -> str:
    try:
        told = time.localtime(moment) if isinstance(moment, int | float) else None
    except (OverflowError, ValueError, OSError):  # of a stranger's bundle
        told = None
    return "" if told is None else time.strftime(", since %Y-%m-%d %H:%M:%S", told)


def _limits(limits: object, completion: object) -> str:
    if not isinstance(limits, Mapping):
        return ""
    words = [
        f"{name.replace('_', ' ')} {describe.span(float(value))}"
        for name in ("timeout", "idle_timeout", "grace")
        if isinstance(value := limits.get(name), int | float)
    ]
    words.append(f"output {size(limits.get('max_stdout_bytes'))} a stream, {limits.get('on_limit')}")
    return ", ".join([*words, *limit_words(limits), f"completion {completion}"])


def _enforced(form: Form) -> list[Fact]:
    """One line an axis."""
    receipt = form.get("receipt")
    told = receipt.get("enforcement") if isinstance(receipt, Mapping) else None
    report = told if told is not None else form.get("enforcement")
    return [(f"held: {axis}", words) for axis, words in enforcement_words(report).items()]


def _stopped(receipt: object) -> str:
    """``cpu time, KILL after a grace of 10s``: two bounds may have one outcome."""
    stop = receipt.get("stop") if isinstance(receipt, Mapping) else None
    if not isinstance(stop, Mapping):
        return ""
    why, grace = str(stop.get("reason")).replace("_", " "), stop.get("grace")
    if stop.get("escalated") and isinstance(grace, int | float):
        return f"{why}, KILL after a grace of {describe.span(float(grace))}"
    return why


def _output(receipt: object) -> str:
    output = receipt.get("output") if isinstance(receipt, Mapping) else None
    if not isinstance(output, Mapping):
        return ""
    words = []
    for stream, facts in output.items():
        if isinstance(facts, Mapping):
            dropped = f" ({size(facts['dropped'])} dropped)" if facts.get("dropped") else ""
            words.append(f"{stream} {size(facts.get('bytes'))}{dropped}")
    return ", ".join(words)


def _flat(value: object) -> str:
    if not isinstance(value, Mapping):
        return ""
    kept = [(key, item) for key, item in value.items() if item not in (None, {}, [])]
    shown = ((key, f"{{{_flat(item)}}}" if isinstance(item, Mapping) else item) for key, item in kept)
    return ", ".join(f"{key}={item}" for key, item in shown)


def _words(value: object) -> list[str]:
    return [str(item) for item in value] if isinstance(value, list | tuple) else []


def _tree(live: object) -> list[list[str]]:
    """The rows of the running tree, as psutil saw it."""
    processes = live.get("processes") if isinstance(live, Mapping) else None
    return [
        [
            str(one.get("pid")),
            str(one.get("parent")),
            str(one.get("status")),
            _cpu(one.get("cpu_seconds")),
            size(one.get("rss_bytes")),
            str(one.get("name")),
        ]
        for one in (processes if isinstance(processes, list) else [])
        if isinstance(one, Mapping)
    ]


def _cpu(seconds: object) -> str:
    return f"{seconds:.2f}s" if isinstance(seconds, int | float) else "-"
