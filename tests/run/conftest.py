"""`run`, `stream` and `spawn`, whoever answers: the faces of ``tests/faces``, each with its own words."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from durable_supervisor import Command, RunResult, Supervisor, run, sync
from tests.contract.runs import Marker
from tests.faces.conftest import Services
from tests.faces.face import EMBEDDING, Face, opened

IN_TASKS = ("embedded", "guest", "async")  # a session that owns the directory is a supervisor beneath


class Caller:
    """Runs commands by one face: a `Client` by its own call for threads."""

    def __init__(self, face: Face) -> None:
        self.face = face
        self.kind = face.kind
        answering: Any = face.sup
        self.supervisor: Any = answering._face.client if face.kind == "sync" else answering

    async def run(self, argv: list[str], *, input: Any = None, **options: Any) -> RunResult:  # noqa: A002
        """``options``: those of `run`, and fields of `Command`."""
        fields = {name: options.pop(name) for name in list(options) if name in Command.FIELDS}
        command = Command(argv=argv, **fields)
        options["supervisor"] = self.supervisor
        if self.kind == "sync":
            return await asyncio.to_thread(sync.run, command, input=input, **options)
        return await run(command, input=input, **options)

    async def sh(self, script: str, **options: Any) -> RunResult:
        return await self.run(["sh", "-c", script], **options)


@pytest.fixture(scope="session")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    with ExitStack() as ending:
        yield Services(tmp_path_factory, ending)


@pytest_asyncio.fixture(params=(*IN_TASKS, "sync"))
async def caller(request: pytest.FixtureRequest, services: Services) -> AsyncIterator[Caller]:
    """Whoever answers."""
    async with calling(request, services) as made:
        yield made


@pytest_asyncio.fixture(params=IN_TASKS)
async def tasks(request: pytest.FixtureRequest, services: Services) -> AsyncIterator[Caller]:
    """Whoever answers a task; the twins for threads have tests of their own."""
    async with calling(request, services) as made:
        yield made


@asynccontextmanager
async def calling(request: pytest.FixtureRequest, services: Services) -> AsyncIterator[Caller]:
    own: Path = request.getfixturevalue("state_dir")
    async with opened(request.param, own if request.param in EMBEDDING else services.state_dir()) as face:
        yield Caller(face)


@pytest_asyncio.fixture
async def sup(state_dir: Path) -> AsyncIterator[Supervisor]:
    async with Supervisor.open(state_dir) as opened:
        yield opened


@pytest.fixture
def marker() -> Iterator[Marker]:
    """Whatever still carries it after the test is killed."""
    mark = Marker()
    yield mark
    mark.kill()
