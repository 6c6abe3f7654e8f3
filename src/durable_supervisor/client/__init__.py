"""The verbs of `Supervisor` over a service's socket: `AsyncClient` for asyncio, `Client` for threads.

Light to import: names load at their first use, and pydantic, SQLite and any server never.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .aio import AsyncClient
    from .info import ServiceInfo
    from .sync import Client

_MODULES = {"AsyncClient": "aio", "Client": "sync", "ServiceInfo": "info"}

__all__ = ["AsyncClient", "Client", "ServiceInfo"]


def __getattr__(name: str) -> object:
    """Import a public name at its first use (PEP 562)."""
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"{__name__}.{module}"), name)
