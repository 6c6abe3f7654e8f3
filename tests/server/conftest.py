"""A service in the test's own loop, on a real socket."""

from __future__ import annotations

import os
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from durable_supervisor import Supervisor
from durable_supervisor.server.server import Server
from tests.server.http import Http


@pytest_asyncio.fixture
async def sup(state_dir: Path) -> AsyncIterator[Supervisor]:
    async with Supervisor.open(state_dir) as opened:
        yield opened


@pytest_asyncio.fixture
async def server(sup: Supervisor) -> AsyncIterator[Server]:
    made = Server(sup, heartbeat=0.1)
    await made.start()
    yield made
    await made.close(drain=1)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user can get into; pytest keeps its own closed, whoever opens them."""
    with tempfile.TemporaryDirectory(prefix="durable-supervisor-") as name:
        os.chmod(name, 0o755)
        yield Path(name)


@pytest.fixture
def http(server: Server) -> Http:
    return Http(server.path)
