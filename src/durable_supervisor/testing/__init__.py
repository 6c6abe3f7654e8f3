"""For tests of applications that use durable_supervisor: a pytest plugin, and what its fixtures give.

The plugin loads by itself where pytest runs and this package is installed; it imports nothing of
the product before a test asks for a fixture.  ``docs/testing.md`` is its manual.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..process.failpoints import failpoint
    from .crash import CrashInjector, Host
    from .fake import Execution, FakeProgram, FakePrograms
    from .hosted import HostedSupervisor
    from .reports import report

_MODULES = {
    "CrashInjector": "durable_supervisor.testing.crash",
    "Execution": "durable_supervisor.testing.fake",
    "FakeProgram": "durable_supervisor.testing.fake",
    "FakePrograms": "durable_supervisor.testing.fake",
    "Host": "durable_supervisor.testing.crash",
    "HostedSupervisor": "durable_supervisor.testing.hosted",
    "failpoint": "durable_supervisor.process.failpoints",
    "report": "durable_supervisor.testing.reports",
}

__all__ = [
    "CrashInjector",
    "Execution",
    "FakeProgram",
    "FakePrograms",
    "Host",
    "HostedSupervisor",
    "failpoint",
    "report",
]


def __getattr__(name: str) -> object:
    """Import a public name at its first use (PEP 562)."""
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(module), name)
