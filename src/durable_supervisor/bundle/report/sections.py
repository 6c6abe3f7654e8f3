"""The parts of the page but its output: what happened on top, facts, timeline, events."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ...model.confining import enforcement_words, limit_words, policy_words
from ...model.events import iso_time
from ...model.quantities import number, plural, size
from ...model.view import RunView
from .collect import Collector, Entry
from .markup import text
from .words import (
    clock,
    command_line,
    evidence_words,
    exit_words,
    flat,
    moment,
    outcome_words,
    span,
    tone,
)

_LONG_COMMAND = 160  # characters, from which it is a script rather than a headline


def header(view: RunView, seen: Collector) -> str:
    """How it ended, what it was, and how that is known."""
    receipt = view.receipt or {}
    took = number(receipt.get("duration"))
    began = moment(receipt.get("started_at") or iso_time(view.created_ns))
    how_long = f"{span(seen.seconds)} seen" if took is None else span(took)
    command = command_line(view.argv)
    long = ' class="long"' if len(command) > _LONG_COMMAND else ""
    return (
        '<a class="skip" href="#output">Skip to the output</a>\n<header>\n'
        f'<p class="verdict {tone(view)}">{text(outcome_words(view))}</p>\n'
        f"<h1{long}>{text(command)}</h1>\n"
        f'<p class="sub"><span>{text(began)}</span><span>{text(how_long)}</span>'
        f"<span>run <code>{text(view.id)}</code></span></p>\n"
        f'<p class="evidence">{text(evidence_words(view))}</p>\n</header>\n'
    )


def facts(view: RunView) -> str:
    """Everything that is known, in two columns; what says nothing is left out."""
    rows = "".join(
        f"<div><dt>{text(name)}</dt><dd>{text(value)}</dd></div>" for name, value in _facts(view) if value
    )
    return f'<section aria-labelledby="h-facts"><h2 id="h-facts">Facts</h2>\n<dl>{rows}</dl></section>\n'


def _facts(view: RunView) -> Iterable[tuple[str, str]]:
    receipt = view.receipt or {}
    yield "State", view.state.value.replace("_", " ")
    yield "Exit", _exit(receipt)
    yield "Stopped because", _stop(receipt.get("stop"))
    yield "Survivors", _survivors(receipt.get("survivors"))
    yield "Request", f"{view.request_id}, owner {view.owner}"
    yield "Attempt", str(view.attempt) if view.attempt > 1 else ""
    yield "Directory", view.cwd
    yield "Terminal", _terminal(view.pty)
    yield "Stdout", _stream(receipt, "stdout")
    yield "Stderr", _stream(receipt, "stderr")
    yield "Stdin", size(receipt["stdin_bytes"]) if receipt.get("stdin_bytes") else ""
    yield "Used", _usage(receipt.get("rusage"))
    yield "Limits", _limits(view.limits)
    yield "Policy", policy_words(view.policy)
    for axis, words in enforcement_words(receipt.get("enforcement")).items():
        yield f"Enforced: {axis.replace('_', ' ')}", words
    yield "Labels", flat(view.labels)
    yield "Process", _identity(view.program)
    yield "Reason", "" if view.receipt else str(view.reason or "")
    yield "Evidence", flat(view.evidence) if view.evidence and not view.receipt else ""
    yield "Operator's word", flat(view.resolution) if view.resolution else ""
    yield "Log health", flat(view.log_health) if view.log_health else "whole"
    yield "Inside run", view.nested_in or ""


def timeline(seen: Collector, drawn: str) -> str:
    """The picture with its legend."""
    legend = "".join(
        f'<li><span class="key {name}"></span>{words}</li>'
        for name, words in (
            ("so", "stdout"),
            ("se", "stderr"),
            ("signal", "signal sent"),
            ("control", "control asked for"),
            ("limit", "limit reached"),
            ("end", "program ended"),
        )
    )
    return (
        '<section aria-labelledby="h-time"><h2 id="h-time">Timeline</h2>\n'
        f'<div class="picture">{drawn}</div>\n<ul class="legend">{legend}</ul></section>\n'
    )


def entries(seen: Collector) -> str:
    """Every event but output as a table: the picture in words."""
    rows = [_row(entry) for entry in seen.entries.head]
    if seen.entries.left_out:
        gap = plural(seen.entries.left_out, "event")
        rows.append(f'<tr class="gap"><td colspan="4">{gap} left out here</td></tr>')
    rows += [_row(entry) for entry in seen.entries.tail]
    return (
        '<section aria-labelledby="h-events"><h2 id="h-events">Events</h2>\n<div class="scroll" tabindex="0" '
        'role="region" aria-labelledby="h-events"><table><thead><tr><th scope="col">Seq</th>'
        '<th scope="col">Time</th><th scope="col">Event</th><th scope="col">What it says</th></tr></thead>\n'
        f"<tbody>{''.join(rows)}</tbody></table></div></section>\n"
    )


def _row(entry: Entry) -> str:
    family = entry.kind.partition(".")[0]
    family = family if family in ("run", "program", "control", "output") else "run"
    return (
        f'<tr><td>{entry.seq}</td><td>{clock(entry.seconds)}</td><td><span class="kind {family}">'
        f"{text(entry.kind)}</span></td><td>{text(entry.words)}</td></tr>\n"
    )


def footer(view: RunView, seen: Collector, version: str) -> str:
    """Where this comes from."""
    return (
        f"<footer><p>Made by durable-supervisor {text(version)} from {plural(seen.events, 'event')} of run "
        f"{text(view.id)}. Times are UTC, and seconds since the run's first event. This page loads nothing, "
        "and works without a network.</p></footer>\n"
    )


def _terminal(pty: Mapping[str, object] | None) -> str:
    return f"{pty.get('columns')} by {pty.get('rows')}, {pty.get('term')}" if pty else ""


def _exit(receipt: Mapping[str, object]) -> str:
    found = receipt.get("exit")
    return f"{exit_words(found)}, as waitid(2) gave it" if isinstance(found, Mapping) else ""


def _stop(stop: object) -> str:
    if not isinstance(stop, Mapping):
        return ""
    grace = number(stop.get("grace"))
    words = [str(stop.get("reason")).replace("_", " ")]
    if grace is not None:
        words.append(f"grace {span(grace)}")
    if stop.get("escalated"):
        words.append("KILL after it")
    return ", ".join(words)


def _survivors(survivors: object) -> str:
    if not isinstance(survivors, list) or not survivors:
        return ""
    pids = [str(one.get("pid")) for one in survivors if isinstance(one, Mapping)]
    return f"{', '.join(pids)} still alive when the stop gave up"


def _stream(receipt: Mapping[str, object], stream: str) -> str:
    output = receipt.get("output")
    totals = output.get(stream) if isinstance(output, Mapping) else None
    if not isinstance(totals, Mapping):
        return ""
    words = [size(totals.get("bytes"))]
    if totals.get("dropped"):
        words.append(f"{size(totals.get('dropped'))} of it not kept")
    words.append("complete" if totals.get("complete") else "end not seen")
    return ", ".join(words)


def _usage(usage: object) -> str:
    if not isinstance(usage, Mapping):
        return ""
    names = ("user_seconds", "system_seconds", "max_rss_kib")
    user, system, peak = (number(usage.get(name)) for name in names)
    words = []
    if user is not None and system is not None:
        words.append(f"{span(user)} user, {span(system)} system")
    if peak is not None:
        words.append(f"{size(peak * 1024)} at most")
    return ", ".join(words)


def _limits(limits: Mapping[str, object]) -> str:
    words = []
    for name in ("timeout", "idle_timeout", "grace"):
        value = number(limits.get(name))
        if value is not None:
            words.append(f"{name.replace('_', ' ')} {span(value)}")
    words += [f"{stream} {size(limits.get(f'max_{stream}_bytes'))}" for stream in ("stdout", "stderr")]
    return ", ".join([*words, f"then {limits.get('on_limit')}", *limit_words(limits)])


def _identity(form: Mapping[str, object] | None) -> str:
    return f"{form.get('pid')}, started at tick {form.get('start_ticks')} of its boot" if form else ""
