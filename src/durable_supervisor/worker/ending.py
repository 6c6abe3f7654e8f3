"""How a run ended: the outcome, and the receipt that states it."""

from __future__ import annotations

import errno
from collections.abc import Mapping

from ..model.events import iso_time
from ..model.outcome import STOP_OUTCOMES, Outcome, natural
from ..process.usage import Usage


def outcome_of(reason: str | None, code: int | None, signal: int | None) -> Outcome:
    """``reason`` is why the ladder began before the run had ended by itself, if it did."""
    kind = STOP_OUTCOMES.get(reason or "")
    return natural(code, signal) if kind is None else Outcome(kind, code, signal)


def make_receipt(
    *,
    attempt: int,
    outcome: Outcome,
    usage: Usage,
    started_ns: int,
    finished_ns: int,
    duration_ns: int,
    output: Mapping[str, object],
    stdin_bytes: int,
    survivors: list[dict[str, object]],
    stop: dict[str, object] | None,
    cleanup_confirmed: bool,
    run_id: str,
    executable: dict[str, object] | None,
    enforcement: Mapping[str, object],
) -> dict[str, object]:
    """The detail of ``run.finished``: see ``docs/events.md`` for each field."""
    return {
        "attempt": attempt,
        "outcome": outcome.to_dict(),
        "exit": {"code": outcome.code, "signal": outcome.signal},
        "rusage": usage.to_dict(),
        "started_at": iso_time(started_ns),
        "finished_at": iso_time(finished_ns),
        "duration": round(duration_ns / 1e9, 6),
        "output": dict(output),
        "stdin_bytes": stdin_bytes,
        "survivors": survivors,
        "stop": stop,
        "incomplete": False,
        "cleanup_confirmed": cleanup_confirmed,
        "run_id": run_id,
        "executable": executable,
        "enforcement": dict(enforcement),
    }


def errno_name(code: int) -> str:
    """``ENOENT`` for 2, and so on."""
    return errno.errorcode.get(code, f"E{code}")
