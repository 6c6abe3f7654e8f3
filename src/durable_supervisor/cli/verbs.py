"""The verbs by name.  A call imports one verb's module, so that ``start`` does not pay for ``doctor``."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Final

from .options import Call, Json, SocketPath, StateDir, Version, settings

# verb: (module, function), in the order of --help.
VERBS: Final[dict[str, tuple[str, str]]] = {
    "start": ("verbs_start", "start"),
    "run": ("verbs_run", "run"),
    "list": ("verbs_read", "list_runs"),
    "inspect": ("verbs_read", "inspect"),
    "events": ("verbs_events", "events"),
    "logs": ("verbs_logs", "logs"),
    "attach": ("verbs_attach", "attach"),
    "replay": ("verbs_watch", "replay"),
    "wait": ("verbs_read", "wait"),
    "stop": ("verbs_control", "stop"),
    "signal": ("verbs_control", "signal"),
    "write-stdin": ("verbs_control", "write_stdin"),
    "resolve": ("verbs_admin", "resolve"),
    "reconcile": ("verbs_admin", "reconcile"),
    "recover": ("verbs_admin", "recover"),
    "gc": ("verbs_gc", "gc"),
    "backup": ("verbs_backup", "backup"),
    "verify": ("verbs_verify", "verify"),
    "feed": ("verbs_events", "feed"),
    "export": ("verbs_bundle", "export"),
    "report": ("verbs_bundle", "report"),
    "import": ("verbs_import", "import_bundles"),
    "audit": ("verbs_audit", "audit"),
    "serve": ("verbs_serve", "serve"),
    "service": ("verbs_service", "service"),
    "doctor": ("verbs_doctor", "doctor"),
    "capabilities": ("verbs_capabilities", "capabilities"),
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
