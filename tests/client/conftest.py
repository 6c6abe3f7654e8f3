"""A service in the test's own loop, and both faces of the client."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from durable_supervisor import Supervisor
from durable_supervisor.server.server import Server
from tests.client.faces import FACES, Face, Kind


@pytest.fixture(params=sorted(FACES))
def kind(request: pytest.FixtureRequest) -> Kind:
    return FACES[request.param]


@pytest_asyncio.fixture
async def sup(state_dir: Path) -> AsyncIterator[Supervisor]:
    async with Supervisor.open(state_dir) as opened:
        yield opened


@pytest_asyncio.fixture
async def server(sup: Supervisor) -> AsyncIterator[Server]:
    made = Server(sup, heartbeat=0.2)
    await made.start()
    yield made
    await made.close(drain=1)


@pytest_asyncio.fixture
async def face(kind: Kind, server: Server, state_dir: Path) -> AsyncIterator[Face]:
    connected = await kind.connect(state_dir)
    yield connected
    await connected.close()
