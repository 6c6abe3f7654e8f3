"""A run that two supervisors have, one after the other."""

from __future__ import annotations

from pathlib import Path

from durable_supervisor import Command, RunState, Supervisor
from tests.support import PATIENCE

# Runs until it is told to leave, and leaves with 9.
LISTENER = Command(argv=["sh", "-c", "read line; exit 9"], stdin="open")


async def check_goes_on(state_dir: Path, run_id: str) -> None:
    """A `LISTENER` of an earlier owner runs, hears the next one, and its end is known."""
    async with Supervisor.open(state_dir) as sup:
        assert (await sup.inspect(run_id)).state is RunState.RUNNING
        await sup.write_stdin(run_id, b"go\n")
        final = await sup.wait(run_id, timeout=PATIENCE)
        assert final.outcome is not None
        assert final.outcome.code == 9
