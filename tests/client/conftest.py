"""A service in the test's own loop, and both faces of the client."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from durable_supervisor.server.server import Server
from tests.client.faces import FACES, Face, Kind
from tests.server.conftest import server, sup

__all__ = ["face", "kind", "server", "sup"]


@pytest.fixture(params=sorted(FACES))
def kind(request: pytest.FixtureRequest) -> Kind:
    return FACES[request.param]


@pytest_asyncio.fixture
async def face(kind: Kind, server: Server, state_dir: Path) -> AsyncIterator[Face]:
    connected = await kind.connect(state_dir)
    yield connected
    await connected.close()
