"""Using the product as an application would, and leaving nothing of it behind."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from durable_supervisor import Command, Limits, OutcomeKind, RunState, RunView, Supervisor, SupervisorError
from durable_supervisor.journal.rows import Admission

from .baselines import TRUE

UNBOUNDED = Limits(max_stdout_bytes=1 << 40, max_stderr_bytes=1 << 40)
WARM_UP = 5


@asynccontextmanager
async def supervisor(directory: Path) -> AsyncIterator[Supervisor]:
    """A supervisor on a new state directory; what still runs at the end is stopped, trees and all."""
    sup = await Supervisor.open(directory / "state", zygote=True)
    try:
        yield sup
    except BaseException:
        with suppress(SupervisorError):  # what went wrong first is what matters
            await end(sup)
        raise
    await end(sup)


async def end(sup: Supervisor) -> None:
    """Kill whatever is left, then close.  A run that cannot be confirmed ended is an error of the bench."""
    while page := (await sup.list(states=[RunState.STARTING, RunState.RUNNING], limit=1000)).runs:
        live = [view for view in page if view.state in (RunState.STARTING, RunState.RUNNING)]
        if not live:
            break
        await asyncio.gather(*(sup.stop(view.id, grace=0) for view in live))
    await sup.close()


async def run_true(sup: Supervisor) -> float:
    """Seconds from the call of start to the receipt, whose exit code is checked."""
    begin = time.perf_counter()
    run = await sup.start(Command(argv=[TRUE]))
    seen = await sup.wait(run.id)
    took = time.perf_counter() - begin
    check_success(seen)
    return took


def check_success(seen: RunView) -> None:
    outcome = seen.outcome
    if outcome is None or outcome.kind is not OutcomeKind.EXITED or outcome.code != 0:
        raise RuntimeError(f"a measured run failed: {seen.state.value}, {outcome}")


async def warm_up(sup: Supervisor) -> None:
    """The zygote is there, modules are loaded, the journal has its pages."""
    for _ in range(WARM_UP):
        await run_true(sup)


async def run_to_end(sup: Supervisor, argv: Sequence[str], secrets: Sequence[str] = ()) -> tuple[str, float]:
    """Run id, and seconds from the call of start to the receipt."""
    begin = time.perf_counter()
    run = await sup.start(Command(argv=list(argv), secrets=tuple(secrets)), limits=UNBOUNDED)
    seen = await sup.wait(run.id)
    took = time.perf_counter() - begin
    check_success(seen)
    return run.id, took


class CommitClock:
    """When the intent of the start under way was durable: the moment its commit came back."""

    def __init__(self, sup: Supervisor) -> None:
        self.at = 0.0
        write: Callable[..., Awaitable[Any]] = sup._journal.write

        async def timed(*args: Any, **kwargs: Any) -> Any:
            answer = await write(*args, **kwargs)
            if isinstance(answer, Admission):
                self.at = time.perf_counter()
            return answer

        # On this one object: no public call tells of the moment between call and answer.
        vars(sup._journal)["write"] = timed
