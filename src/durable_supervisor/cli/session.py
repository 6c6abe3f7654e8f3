"""Opening the product for one call of the command line."""

from __future__ import annotations

from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from durable_supervisor.supervisor.observer import Observer
    from durable_supervisor.supervisor.supervisor import Supervisor

    from .options import Settings


def drive(work: Coroutine[Any, Any, int]) -> int:
    """Run one verb to its exit code.  Ctrl-C cancels it (KeyboardInterrupt)."""
    import asyncio

    return asyncio.run(work)


@asynccontextmanager
async def observing(shared: Settings) -> AsyncIterator[Observer]:
    """For reading and controls: needs no ownership and no live supervisor."""
    from durable_supervisor.supervisor.observer import Observer

    async with Observer.open(shared.state_dir) as observer:
        yield observer


@asynccontextmanager
async def owning(shared: Settings) -> AsyncIterator[Supervisor]:
    """For starting and judging: owns the state directory while open; closing leaves runs alone."""
    from durable_supervisor.supervisor.supervisor import Supervisor

    async with Supervisor.open(shared.state_dir) as supervisor:
        yield supervisor
