"""What the tests of capacity and queue share: programs that hold a slot until they are told to leave."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from durable_supervisor import Command, Observer, RunState, RunView, Supervisor
from durable_supervisor.model.run import Run
from tests.support import PATIENCE, eventually_async


class Yard:
    """A folder where programs sign in: one line for each execution, in order."""

    def __init__(self, folder: Path) -> None:
        self.book = folder / "book"
        self._folder = folder

    def command(self, name: str, body: str = "", **options: Any) -> Command:
        """Signs in, and is over at once (after ``body``)."""
        return Command(argv=["sh", "-c", f'echo "$1" >> "$2"; {body}', "sh", name, str(self.book)], **options)

    def holder(self, name: str) -> Command:
        """Signs in, and goes on until `release`."""
        wait = 'n=0; while [ ! -e "$2.$1" ] && [ $n -lt 1200 ]; do n=$((n+1)); sleep 0.05; done'
        return self.command(name, wait)

    def release(self, name: str) -> None:
        Path(f"{self.book}.{name}").touch()

    def signed_in(self) -> list[str]:
        return self.book.read_text().split() if self.book.exists() else []


async def hold(sup: Supervisor, yard: Yard, name: str, **options: Any) -> Run:
    """A run that holds a slot."""
    run = await sup.start(yard.holder(name), request_id=name, **options)
    assert run.state is RunState.RUNNING
    return run


async def queue(sup: Supervisor, yard: Yard, name: str, **options: Any) -> Run:
    """A run that waits for a slot."""
    run = await sup.start(yard.command(name), request_id=name, queue=True, **options)
    assert run.state is RunState.QUEUED
    return run


async def counts(sup: Supervisor, held: int, queued: int) -> None:
    """So many runs hold a slot and wait for one, as soon as the journal knows of the last end."""

    async def so() -> bool:
        capacity = sup.capacity()
        return (capacity.held, capacity.queued) == (held, queued)

    await eventually_async(so, PATIENCE, f"it never was {held} held, {queued} queued")


async def in_state(sup: Observer, run: str, *states: RunState) -> RunView:
    async def there() -> bool:
        return (await sup.inspect(run)).state in states

    await eventually_async(there, PATIENCE, f"it never was {[state.value for state in states]}")
    return await sup.inspect(run)


async def finished(sup: Observer, *runs: Run) -> None:
    for run in runs:
        assert (await sup.wait(run.id, timeout=PATIENCE)).state is RunState.FINISHED
