"""The verbs by name.  A call imports one verb's module, so that ``start`` does not pay for ``doctor``."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Final

from .options.shared import Call, Json, SocketPath, StateDir, Version, settings

# verb: (module, function), in the order of --help.
VERBS: Final[dict[str, tuple[str, str]]] = {
    "start": ("starting.start", "start"),
    "run": ("starting.run", "run"),
    "list": ("reading.runs", "list_runs"),
    "inspect": ("reading.runs", "inspect"),
    "events": ("reading.events", "events"),
    "logs": ("reading.logs", "logs"),
    "attach": ("watching.attach", "attach"),
    "replay": ("watching.replay", "replay"),
    "wait": ("reading.runs", "wait"),
    "stop": ("control.live", "stop"),
    "signal": ("control.live", "signal"),
    "write-stdin": ("control.live", "write_stdin"),
    "resolve": ("control.admin", "resolve"),
    "reconcile": ("control.admin", "reconcile"),
    "recover": ("control.admin", "recover"),
    "gc": ("keeping.gc", "gc"),
    "backup": ("keeping.backup", "backup"),
    "verify": ("keeping.verify", "verify"),
    "feed": ("reading.events", "feed"),
    "export": ("bundles.export", "export"),
    "report": ("bundles.export", "report"),
    "import": ("bundles.import_bundles", "import_bundles"),
    "audit": ("keeping.audit", "audit"),
    "serve": ("service.serve", "serve"),
    "service": ("service.service", "service"),
    "doctor": ("doctor.doctor", "doctor"),
    "capabilities": ("doctor.capabilities", "capabilities"),
}
# The words after these verbs belong to the program: `dsup run ls -l` needs no `--`.
_TAKES_ARGV: Final = {"start", "run"}


def load(verb: str) -> Callable[..., int]:
    """The function that is the verb: its declarations, its help, its work."""
    module, function = VERBS[verb]
    found: Callable[..., int] = getattr(importlib.import_module(f".{module}", __package__), function)
    return found


def interspersed(verb: str) -> bool:
    """May options stand after the first argument?"""
    return verb not in _TAKES_ARGV


def shared(
    call: Call,
    json: Json = False,
    state_dir: StateDir = None,
    socket: SocketPath = None,
    version: Version = False,
) -> None:
    """Run programs that survive the death of everything that started them.

    \b
    Example:
      dsup start --request-id nightly-17 -- make report
      dsup attach 4f7k
    """
    settings(call, json, state_dir, socket)
