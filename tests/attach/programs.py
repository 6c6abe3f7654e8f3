"""Programs to attach to, and what is seen of them.

They are started in this process: each call of the command line costs half a second.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from pathlib import Path
from typing import Any

from durable_supervisor import Command, Supervisor, Terminal
from durable_supervisor.api.attached import Attached
from tests.support import PATIENCE

PTY = Terminal(columns=100, rows=30)
# What comes is read to its prompt: one of our own is found whatever the shell.
PROMPT = "ready> "


def started(state_dir: Path, *argv: str, over: bool = False, **options: Any) -> str:
    """The id of a run; ``over``: it has ended."""

    async def start() -> str:
        async with Supervisor.open(state_dir, zygote=False) as sup:
            run = await sup.start(Command(argv=argv, **options))
            if over:
                await sup.wait(run.id, timeout=PATIENCE)
            return run.id

    return asyncio.run(start())


def shell(state_dir: Path) -> str:
    """A shell at a terminal, which says `PROMPT`."""
    return started(state_dir, "env", f"PS1={PROMPT}", "sh", pty=PTY)


async def until(attached: Attached, text: bytes) -> bytes:
    """All output from the cursor on, up to the event that completes ``text``."""
    seen = b""
    async with asyncio.timeout(PATIENCE), aclosing(aiter(attached)) as events:
        async for event in events:
            seen += event.data
            if text in seen:
                return seen
    raise AssertionError(f"{text!r} was not in {seen!r}")
