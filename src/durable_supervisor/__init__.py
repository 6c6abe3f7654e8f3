"""Durable, journaled execution of programs on one host.

``from durable_supervisor import Supervisor, Command, Limits`` is the whole face
for most applications; names load lazily, so that importing the package (which
every worker does) costs nothing.
"""

from __future__ import annotations

__version__ = "0.1.0"

_PUBLIC = {
    "Attachment": "durable_supervisor.supervisor.observer",
    "Command": "durable_supervisor.model.command",
    "Completion": "durable_supervisor.model.command",
    "ErrorCode": "durable_supervisor.model.errors",
    "Event": "durable_supervisor.model.events",
    "Limits": "durable_supervisor.model.command",
    "Observer": "durable_supervisor.supervisor.observer",
    "OnLimit": "durable_supervisor.model.command",
    "Outcome": "durable_supervisor.model.outcome",
    "OutcomeKind": "durable_supervisor.model.outcome",
    "RunState": "durable_supervisor.model.states",
    "Supervisor": "durable_supervisor.supervisor.supervisor",
    "SupervisorError": "durable_supervisor.model.errors",
}

__all__ = ["__version__", *sorted(_PUBLIC)]


def __getattr__(name: str) -> object:
    """Import a public name at its first use (PEP 562)."""
    module = _PUBLIC.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(module), name)
