"""``doctor``: will it work here, and if not, what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..options.shared import Call, Json, StateDir, settings
from ..output import exit_codes, out

if TYPE_CHECKING:
    from .checks import Check

_MARKS = {"ok": ("green", "ok"), "note": ("yellow", "note"), "bad": ("red", "BAD")}


def doctor(call: Call, json: Json = False, state_dir: StateDir = None) -> int:
    """Check the machine and the state directory; changes nothing. Leaves with 1 if something is bad.

    \b
    Example:
      dsup doctor --state-dir /var/lib/agents
    """
    from durable_supervisor.supervisor.state.state_dir import locate

    from .examination import examine

    shared = settings(call, json, state_dir)
    place = locate(shared.state_dir)
    checks = examine(place)
    healthy = all(check.status != "bad" for check in checks)
    if shared.json:
        out.document(
            {
                "schema": "durable-supervisor/doctor/1",
                "healthy": healthy,
                "state_dir": place.path,
                "checks": [check.to_dict() for check in checks],
            }
        )
    else:
        _print(checks)
    return exit_codes.OK if healthy else exit_codes.FAILED


def _print(checks: list[Check]) -> None:
    from ..output.escape import escape_text
    from ..output.style import Style

    style = Style(out.STDOUT)
    for check in checks:
        colour, word = _MARKS[check.status]
        hint = f" ({check.hint})" if check.hint else ""
        out.line(f"{style.paint(colour, f'{word:<4}')}  {check.name:<16} {escape_text(check.detail + hint)}")
