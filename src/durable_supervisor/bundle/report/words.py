"""Plain words for people: outcomes, events, sizes, times.  Not escaped; `markup.text` does that."""

from __future__ import annotations

import json
import shlex
import signal as signals
from collections.abc import Callable, Mapping

from ...model.confining import confined_words
from ...model.events import Kind
from ...model.quantities import number, size
from ...model.states import OPEN_STATES
from ...model.view import RunView

Form = Mapping[str, object]
_LONGEST = 400


def signal_word(number: object) -> str:
    """``KILL`` for 9; the number itself where it has no name."""
    try:
        return signals.Signals(int(str(number))).name.removeprefix("SIG")
    except ValueError:
        return str(number)


def outcome_words(view: RunView) -> str:
    """``exited 3``, ``ended by signal KILL``, ``cancelled, exit 0``; without an outcome the state."""
    outcome = view.outcome
    return view.state.value.replace("_", " ") if outcome is None else ended_words(outcome.to_dict())


def ended_words(outcome: Form) -> str:
    """The same from an outcome's JSON form."""
    kind, how = outcome.get("kind"), exit_words(outcome)
    if kind == "exited":
        return f"exited {outcome.get('code')}"
    return f"ended by {how}" if kind == "signaled" else f"{str(kind).replace('_', ' ')}, {how}"


def exit_words(status: Form) -> str:
    """``exit 3`` or ``signal KILL``, from an object with ``code`` and ``signal``."""
    signal = status.get("signal")
    return f"exit {status.get('code')}" if signal is None else f"signal {signal_word(signal)}"


def tone(view: RunView) -> str:
    """``good`` for a clean exit, ``bad`` for another end, ``open`` for what goes on, ``unsure`` otherwise."""
    if view.outcome is not None:
        return "good" if (view.outcome.kind.value, view.outcome.code) == ("exited", 0) else "bad"
    return "open" if view.state in OPEN_STATES else "unsure"


def evidence_words(view: RunView) -> str:
    """One sentence on how this is known."""
    receipt = view.receipt
    if receipt is not None and receipt.get("incomplete"):
        return "Its exit status was logged, then its worker was lost: the last output may be missing."
    if receipt is not None:
        left = "nothing" if receipt.get("cleanup_confirmed") else "perhaps something"
        return f"Receipt of its worker: the status is the kernel's own, and {left} of its tree was left."
    state = view.state.value
    if state == "not_started":
        return f"The program never ran ({view.reason}): that is proven."
    if state in ("unknown", "quarantined"):
        return f"How it ended cannot be known ({view.reason}). It is never run again by itself."
    return "It was not over when this report was made; what follows is as of then."


def command_line(argv: object) -> str:
    """The arguments, quoted for a shell where they need it."""
    return " ".join(shlex.quote(str(word)) for word in argv) if isinstance(argv, list | tuple) else ""


def span(seconds: float) -> str:
    """``40 ms``, ``1.42 s``, ``12.3 s``, ``3m 05s``, ``2h 10m``, ``5d 03h``."""
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.2f} s" if seconds < 10 else f"{seconds:.1f} s"
    whole = int(seconds)
    if whole < 3600:
        return f"{whole // 60}m {whole % 60:02d}s"
    if whole < 86400:
        return f"{whole // 3600}h {whole % 3600 // 60:02d}m"
    return f"{whole // 86400}d {whole % 86400 // 3600:02d}h"


def clock(seconds: float) -> str:
    """A moment of the run's life: ``+0.012``, ``+1:02.500``, ``+2:03:04.000``."""
    minutes, rest = divmod(max(seconds, 0.0), 60)
    hours, minutes = divmod(int(minutes), 60)
    if hours:
        return f"+{hours}:{minutes:02d}:{rest:06.3f}"
    return f"+{minutes}:{rest:06.3f}" if minutes else f"+{rest:.3f}"


def moment(iso: object) -> str:
    """An RFC 3339 UTC time as ``2026-01-02 03:04:05 UTC``."""
    words = str(iso)
    return f"{words[:10]} {words[11:19]} UTC" if len(words) >= 19 and words[10] == "T" else words


def event_words(kind: str, detail: Form) -> str:
    """What an event that is not output says, in a few words."""
    return clipped(_EVENTS.get(kind, flat)(detail))


def clipped(words: str) -> str:
    """A stranger's log may have megabytes where we have a word."""
    return words if len(words) <= _LONGEST else f"{words[:_LONGEST]}…"


def flat(detail: object) -> str:
    """``name=value`` of an object; what is nested as JSON."""
    if not isinstance(detail, Mapping):
        return str(detail)
    return " ".join(
        f"{name}={_plain(value)}" for name, value in detail.items() if value not in (None, "", [], {})
    )


def _plain(value: object) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    return value if isinstance(value, str) else json.dumps(value, default=str)


def gap_words(detail: Form) -> str:
    """What stands in the place of output that is not there."""
    count, stream, reason = detail.get("bytes"), detail.get("stream"), str(detail.get("reason", "dropped"))
    what = f"{size(count)} of {stream}" if count is not None and stream else "output"
    return f"{what} not kept here ({reason.replace('_', ' ')})"


def _pid(detail: Form) -> object:
    identity = detail.get("identity")
    return identity.get("pid", "?") if isinstance(identity, Mapping) else "?"


def _dispatched(detail: Form) -> str:
    return f"worker {_pid(detail)}, attempt {detail.get('attempt', '?')}"


def _spawned(detail: Form) -> str:
    return f"process {_pid(detail)}: {detail.get('canonical') or detail.get('requested') or ''}"


def _stopping(detail: Form) -> str:
    grace = number(detail.get("grace"))
    reason = str(detail.get("reason", "")).replace("_", " ")
    return reason if grace is None else f"{reason}, grace {span(grace)}"


def _signalled(detail: Form) -> str:
    pids = detail.get("pids")
    step = detail.get("step")
    count = len(pids) if isinstance(pids, list) else 0
    whom = f"{count} process{'' if count == 1 else 'es'}"
    return f"{signal_word(detail.get('signal'))} to {whom}" + (f" ({step})" if step else "")


def _finished(detail: Form) -> str:
    outcome, duration = detail.get("outcome"), number(detail.get("duration"))
    words = [ended_words(outcome) if isinstance(outcome, Mapping) else "finished"]
    if duration is not None:
        words.append(f"after {span(duration)}")
    return ", ".join(words)


_EVENTS: dict[str, Callable[[Form], str]] = {
    Kind.RUN_DISPATCHED: _dispatched,
    Kind.PROGRAM_SPAWNED: _spawned,
    Kind.PROGRAM_CONFINED: confined_words,
    Kind.PROGRAM_RELEASED: lambda detail: "the gate is open",
    Kind.PROGRAM_EXITED: exit_words,
    Kind.RUN_STOPPING: _stopping,
    Kind.PROGRAM_SIGNALLED: _signalled,
    Kind.RUN_FINISHED: _finished,
    Kind.OUTPUT_DROPPED: gap_words,
}
