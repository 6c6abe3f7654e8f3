"""A supervisor inside of a run: a machine that can do less than this one, without a pretence.

What runs under any policy can make no namespaces.  ``python nested.py STATE-DIR ARGV…`` prints, as JSON,
how runs ended there: with no network required, with a loopback at best, and with one required.
"""

from __future__ import annotations

import asyncio
import json
import sys

from durable_supervisor import Command, Policy, Supervisor, SupervisorError


async def ended(sup: Supervisor, argv: list[str], policy: Policy) -> dict[str, object]:
    try:
        run = await sup.start(Command(argv=argv), policy=policy)
    except SupervisorError as error:
        return {"code": error.code, "details": error.details, "runs": len((await sup.list()).runs)}
    view = await sup.wait(run.id, timeout=20)
    page = await sup.events(run.id, limit=1000)
    assert view.receipt is not None, view
    return {
        "enforcement": view.receipt["enforcement"],
        "stdout": b"".join(event.data for event in page.events if event.stream == "stdout").decode(),
    }


async def main(state_dir: str, argv: list[str]) -> list[dict[str, object]]:
    async with Supervisor.open(state_dir) as sup:
        return [
            await ended(sup, argv, Policy(network="none", enforcement={"network": "required"})),
            await ended(sup, argv, Policy(network="loopback")),
            await ended(sup, argv, Policy(network="loopback", enforcement={"network": "required"})),
        ]


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(sys.argv[1], sys.argv[2:]))))
