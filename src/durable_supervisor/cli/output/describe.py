"""Short words for states, outcomes and events.  Everything returned is escaped, plain, one line."""

from __future__ import annotations

import re
import signal as signals
import time
from collections.abc import Callable, Mapping

from durable_supervisor.model.confining import confined_words
from durable_supervisor.model.events import Kind
from durable_supervisor.model.quantities import number, size
from durable_supervisor.model.states import OPEN_STATES

from .escape import escape_text

Form = Mapping[str, object]
_CAUSES = {
    "cpu_time": "its processor time is used up",
    "worker_terminated": "its worker was told to end",
    "host_gone": "the process that asked for it is gone",
}
_GENERATED = r"req-[0-9a-z]{16}"


def state_word(form: Form) -> str:
    """``running``, or for a finished run how it ended: ``exited 0``, ``signaled KILL``."""
    outcome = form.get("outcome")
    if isinstance(outcome, Mapping):
        return outcome_word(outcome)
    state = str(form.get("state"))
    reason = form.get("reason")
    return escape_text(f"{state} ({reason})" if reason and state != "finished" else state)


def outcome_word(outcome: Form) -> str:
    """``exited 3``, ``signaled KILL``, ``cancelled (exit 0)``, ``timed_out (TERM)``."""
    kind, code, signal = str(outcome.get("kind")), outcome.get("code"), outcome.get("signal")
    how = signal_name(signal) if isinstance(signal, int) else str(code)
    if kind in ("exited", "signaled"):
        return escape_text(f"{kind} {how}")
    return escape_text(f"{kind} ({how if isinstance(signal, int) else f'exit {how}'})")


def end_words(form: Form) -> str:
    """`outcome_word` of a run that is over, and by what, where that could be one of several."""
    outcome, receipt = form.get("outcome"), form.get("receipt")
    word = outcome_word(outcome) if isinstance(outcome, Mapping) else state_word(form)
    stop = receipt.get("stop") if isinstance(receipt, Mapping) else None
    why = stop.get("reason") if isinstance(stop, Mapping) else None
    return f"{word}: {_CAUSES[why]}" if isinstance(why, str) and why in _CAUSES else word


def signal_name(number: int) -> str:
    """``KILL`` for 9; the number itself where it has no name."""
    try:
        return signals.Signals(number).name.removeprefix("SIG")
    except ValueError:
        return str(number)


def state_colour(form: Form) -> str:
    """Green for a clean exit, yellow for what is going on, red for what needs a look."""
    outcome = form.get("outcome")
    if isinstance(outcome, Mapping):
        return "green" if (outcome.get("kind"), outcome.get("code")) == ("exited", 0) else "red"
    return "yellow" if is_open(form) else "magenta"


def is_open(form: Form) -> bool:
    """Does it wait, or go on?"""
    return form.get("state") in OPEN_STATES


def not_started_reason(form: Form) -> str:
    """Why user code never ran, from the run's reason and evidence."""
    from durable_supervisor.model.start_failure import start_failure_words  # what runs has none

    evidence = form.get("evidence")
    found = dict(evidence) if isinstance(evidence, Mapping) else {}
    inner = found.get("exec_failed")
    if isinstance(inner, Mapping):
        found.update(inner)
    reason = form.get("reason")
    return escape_text(start_failure_words(None if reason is None else str(reason), found))


def is_generated(request_id: str) -> bool:
    """An id that nobody chose tells nothing to a person."""
    return re.fullmatch(_GENERATED, request_id) is not None


def command_line(argv: object) -> str:
    """The arguments, quoted for a shell where they need it."""
    import shlex

    words = argv if isinstance(argv, list | tuple) else []
    return escape_text(" ".join(shlex.quote(str(word)) for word in words))


def span(seconds: float) -> str:
    """``40ms``, ``1.4s``, ``12s``, ``3m05s``, ``2h10m``, ``5d03h``."""
    if 0 < seconds < 0.9995:
        return f"{seconds * 1000:.0f}ms"
    if seconds < 10:
        return f"{max(seconds, 0):.1f}s"
    whole = int(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    if whole < 86400:
        return f"{whole // 3600}h{whole % 3600 // 60:02d}m"
    return f"{whole // 86400}d{whole % 86400 // 3600:02d}h"


def local_time(iso: object) -> str:
    """An RFC 3339 UTC time as local date and time; what is not one, as it is."""
    moment = parse_time(iso)
    if moment is None:
        return escape_text(str(iso)) if iso else "-"
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(moment))


def parse_time(iso: object) -> float | None:
    """Unix seconds of an RFC 3339 time, or None."""
    from datetime import datetime

    try:
        return datetime.fromisoformat(str(iso)).timestamp()
    except ValueError:
        return None


def event_text(kind: str, detail: Form) -> str:
    """What an event that is not output says, in a few words."""
    describe = _EVENTS.get(kind)
    if describe is None:
        return escape_text(_scalars(detail))
    return escape_text(describe(detail))


def _scalars(detail: Form) -> str:
    plain = [(key, value) for key, value in detail.items() if isinstance(value, str | int | float)]
    return " ".join(f"{key}={value}" for key, value in plain if value != "")


def _spawned(detail: Form) -> str:
    identity = detail.get("identity")
    pid = identity.get("pid") if isinstance(identity, Mapping) else "?"
    path = detail.get("canonical") or detail.get("requested") or ""
    return f"pid {pid} {path}".rstrip()


def _dispatched(detail: Form) -> str:
    identity = detail.get("identity")
    pid = identity.get("pid") if isinstance(identity, Mapping) else "?"
    return f"worker {pid}, attempt {detail.get('attempt', '?')}: {command_line(detail.get('argv'))}"


def _exited(detail: Form) -> str:
    signal = detail.get("signal")
    return f"signal {signal_name(signal)}" if isinstance(signal, int) else f"code {detail.get('code')}"


def _stopping(detail: Form) -> str:
    grace = detail.get("grace")
    return f"{detail.get('reason', '')}" + (f", grace {grace}s" if grace is not None else "")


def _signalled(detail: Form) -> str:
    pids = detail.get("pids")
    count = len(pids) if isinstance(pids, list) else 0
    name = str(detail.get("name") or detail.get("signal", "")).removeprefix("SIG")
    return f"{name} to {count} process{'' if count == 1 else 'es'}"


def _dropped(detail: Form) -> str:
    count, stream = detail.get("bytes"), detail.get("stream")
    what = f"{size(count)} of {stream}" if count is not None and stream else "events"
    return f"{what} ({detail.get('reason', 'dropped')}), from event {detail.get('first_seq', '?')}"


def _finished(detail: Form) -> str:
    outcome = detail.get("outcome")
    words = [outcome_word(outcome) if isinstance(outcome, Mapping) else "finished"]
    duration, survivors = number(detail.get("duration")), detail.get("survivors")
    if duration is not None:
        words.append(f"after {span(duration)}")
    if isinstance(survivors, list) and survivors:
        words.append(f"{len(survivors)} survivors")
    if detail.get("incomplete"):
        words.append("incomplete")
    return ", ".join(words)


def _reason(detail: Form) -> str:
    return " ".join(str(detail[key]) for key in ("reason", "error", "path") if detail.get(key))


_EVENTS: dict[str, Callable[[Form], str]] = {
    Kind.RUN_DISPATCHED: _dispatched,
    Kind.RUN_STOPPING: _stopping,
    Kind.RUN_FINISHED: _finished,
    Kind.RUN_NOT_STARTED: _reason,
    Kind.RUN_UNKNOWN: _reason,
    Kind.RUN_QUARANTINED: _reason,
    Kind.PROGRAM_SPAWNED: _spawned,
    Kind.PROGRAM_CONFINED: confined_words,
    Kind.PROGRAM_SIGNALLED: _signalled,
    Kind.PROGRAM_EXITED: _exited,
    Kind.OUTPUT_DROPPED: _dropped,
}
