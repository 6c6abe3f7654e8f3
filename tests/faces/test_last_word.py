"""A worker is killed when its program's exit is known: who follows sees its owner's word, whoever answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import pytest_asyncio

from durable_supervisor.process.failpoints import VARIABLE
from tests.faces.face import EMBEDDING, Face, opened
from tests.service.daemons import Service
from tests.support import PATIENCE

EXITED = "worker.exited=kill"
FOLLOWERS = 4


@pytest_asyncio.fixture
async def deadly(kind: str, state_dir: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Face]:
    """Whoever answers, of an owner whose workers all die there."""
    async with AsyncExitStack() as stack:
        if kind in EMBEDDING:
            monkeypatch.setenv(VARIABLE, EXITED)
        else:
            stack.enter_context(Service(state_dir, DURABLE_SUPERVISOR_FAILPOINTS=EXITED))
        yield await stack.enter_async_context(opened(kind, state_dir))


async def test_followers_see_the_owners_word(deadly: Face) -> None:
    """Those who were there, who came when it was over, and who attached."""

    async def kinds(attached: bool = False) -> list[str]:
        events = deadly.sup.attach(run.id) if attached else deadly.sup.follow(run.id)
        async with asyncio.timeout(PATIENCE):
            return [event.kind async for event in events]

    asynchronous = deadly.kind != "sync"  # an attachment of `Client` iterates in a thread of its caller's
    for _ in range(3):
        run = await deadly.sh("read line; exit 3", stdin="open")
        manners = [False, asynchronous] * (FOLLOWERS // 2)
        followers = [asyncio.create_task(kinds(attached)) for attached in manners]
        await deadly.sup.write_stdin(run.id, b"go\n")
        outcome = (await deadly.wait(run)).outcome
        assert outcome is not None
        assert outcome.code == 3
        seen = [await kinds(), *await asyncio.gather(*followers)]
        whole = await deadly.events(run)
        assert seen == [[event.kind for event in whole]] * (FOLLOWERS + 1)
        assert whole[-1].kind == "run.finished"
        assert whole[-1].detail["incomplete"] is True
