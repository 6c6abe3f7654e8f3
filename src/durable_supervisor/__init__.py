"""Durable, journaled execution of programs on one host.

``from durable_supervisor import Supervisor, Command, Limits`` is the whole face
for most applications; names load lazily, so that importing the package (which
every worker does) costs nothing.
"""

from __future__ import annotations

__version__ = "0.1.0"

TYPE_CHECKING = False  # not from typing: every worker would pay for that import
if TYPE_CHECKING:
    from .api.cancel import CancellationToken
    from .api.connect import connect
    from .api.open import open as open  # noqa: A004  left out of __all__, so that import * takes nobody's open()
    from .api.run import run
    from .api.session import Session
    from .api.spawn import Process, spawn
    from .api.stream import Stream, stream
    from .client.aio import AsyncClient
    from .client.info import ServiceInfo
    from .client.sync import Client
    from .model.answers import (
        ControlReceipt,
        FeedEntry,
        ListPage,
        ReconcileReport,
        ShutdownReport,
        StopReceipt,
    )
    from .model.axis import AxisReport
    from .model.backup import BackupReport
    from .model.capabilities import Capabilities, Capability
    from .model.collecting import GcReport
    from .model.command import Command, Completion, Limits, OnLimit
    from .model.errors import ErrorCode, Phase, SupervisorError
    from .model.events import Event, Kind
    from .model.importing import ImportReport
    from .model.outcome import Outcome, OutcomeKind
    from .model.page import Page
    from .model.policy import Access, Grant, Policy
    from .model.request import Lifetime
    from .model.result import RunFailedError, RunResult
    from .model.run import Run
    from .model.states import RunState
    from .model.terminal import Terminal
    from .model.verify import Finding, VerifyReport
    from .model.view import RunView
    from .supervisor.controls.attach import Attachment
    from .supervisor.observer import Observer
    from .supervisor.policy.capabilities import capabilities
    from .supervisor.supervisor import Supervisor
    from .upkeep.backup import backup
    from .upkeep.verify import verify

_MODULES = {
    "Access": "model.policy",
    "AsyncClient": "client.aio",
    "Attachment": "supervisor.controls.attach",
    "AxisReport": "model.axis",
    "BackupReport": "model.backup",
    "CancellationToken": "api.cancel",
    "Capabilities": "model.capabilities",
    "Capability": "model.capabilities",
    "Client": "client.sync",
    "Command": "model.command",
    "Completion": "model.command",
    "ControlReceipt": "model.answers",
    "ErrorCode": "model.errors",
    "Event": "model.events",
    "FeedEntry": "model.answers",
    "Finding": "model.verify",
    "GcReport": "model.collecting",
    "Grant": "model.policy",
    "ImportReport": "model.importing",
    "Kind": "model.events",
    "Lifetime": "model.request",
    "Limits": "model.command",
    "ListPage": "model.answers",
    "Observer": "supervisor.observer",
    "OnLimit": "model.command",
    "Outcome": "model.outcome",
    "OutcomeKind": "model.outcome",
    "Page": "model.page",
    "Phase": "model.errors",
    "Policy": "model.policy",
    "Process": "api.spawn",
    "ReconcileReport": "model.answers",
    "Run": "model.run",
    "RunFailedError": "model.result",
    "RunResult": "model.result",
    "RunState": "model.states",
    "RunView": "model.view",
    "ServiceInfo": "client.info",
    "Session": "api.session",
    "ShutdownReport": "model.answers",
    "StopReceipt": "model.answers",
    "Stream": "api.stream",
    "Supervisor": "supervisor.supervisor",
    "SupervisorError": "model.errors",
    "Terminal": "model.terminal",
    "VerifyReport": "model.verify",
    "backup": "upkeep.backup",
    "capabilities": "supervisor.policy.capabilities",
    "connect": "api.connect",
    "open": "api.open",
    "run": "api.run",
    "spawn": "api.spawn",
    "stream": "api.stream",
    "verify": "upkeep.verify",
}

__all__ = [
    "Access", "AsyncClient", "Attachment", "AxisReport", "BackupReport", "CancellationToken", "Capabilities",
    "Capability", "Client", "Command", "Completion", "ControlReceipt", "ErrorCode", "Event", "FeedEntry",
    "Finding", "GcReport", "Grant", "ImportReport", "Kind", "Lifetime", "Limits", "ListPage", "Observer",
    "OnLimit", "Outcome", "OutcomeKind", "Page", "Phase", "Policy", "Process", "ReconcileReport", "Run",
    "RunFailedError", "RunResult", "RunState", "RunView", "ServiceInfo", "Session", "ShutdownReport",
    "StopReceipt", "Stream", "Supervisor", "SupervisorError", "Terminal", "VerifyReport", "__version__",
    "backup", "capabilities", "connect", "run", "spawn", "stream", "verify",
]  # fmt: skip


def __getattr__(name: str) -> object:
    """Import a public name at its first use (PEP 562)."""
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib
    import sys

    if sys.platform == "win32" and not module.startswith("model."):
        from .model.platform import check_platform

        check_platform()  # or the import would end at the first module that Windows lacks
    try:
        return getattr(importlib.import_module(f"{__name__}.{module}"), name)
    except ModuleNotFoundError as error:
        from .model.extras import extra_of

        extra = extra_of(error)
        if extra is None:
            raise
        missing = f"{name} needs {error.name}: pip install 'durable-supervisor[{extra}]'"
        raise ModuleNotFoundError(missing, name=error.name) from error
