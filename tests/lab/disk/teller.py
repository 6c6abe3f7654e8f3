"""What one process is told of a run: ``python teller.py STATE_DIR RUN observer|owner`` prints it as JSON."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from durable_supervisor import Observer, Supervisor, SupervisorError


async def told(reader: Observer, run: str) -> dict[str, Any]:
    try:
        waited = (await reader.wait(run, timeout=10)).state.value
    except SupervisorError as error:
        waited = error.code.value
    seen = await reader.inspect(run)
    return {
        "waited": waited,
        "inspected": [seen.state.value, seen.reason, seen.outcome and seen.outcome.code],
        "listed": [one.state.value for one in (await reader.list()).runs],
        "ended": "run.finished" in [event.kind for event in (await reader.events(run)).events],
    }


async def main(state_dir: str, run: str, role: str) -> None:
    if role == "observer":
        async with Observer.open(state_dir) as reader:
            print(json.dumps(await told(reader, run)))
    else:
        async with Supervisor.open(state_dir) as sup:
            print(json.dumps(await told(sup, run)))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
