"""The product's contract, once for whoever answers: each test runs on every face there is.

============  ====================================================================
``embedded``  `Supervisor`: it owns the directory, in this process
``session``   `open()` of a directory that nobody has: it owns and serves it
``guest``     `open()` of a directory that a service owns: it asks, and reads files
``async``     `AsyncClient` of a service
``sync``      `Client` of a service, in threads
============  ====================================================================

The services are shared by all tests of a process, as services are in life: a test knows
its own runs by its request ids and labels, and leaves the others' alone.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import pytest_asyncio

from tests.contract.runs import Marker
from tests.faces.face import EMBEDDING, KINDS, Face, opened
from tests.service.daemons import Service
from tests.support import reap_state_dir


@pytest.fixture(scope="session")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    with ExitStack() as ending:
        yield Services(tmp_path_factory, ending)


class Services:
    """One for each set of options, from its first use to the end of all tests."""

    def __init__(self, factory: pytest.TempPathFactory, ending: ExitStack) -> None:
        self._factory = factory
        self._ending = ending
        self._made: dict[tuple[str, ...], Path] = {}

    def state_dir(self, *options: str) -> Path:
        if options not in self._made:
            path = self._factory.mktemp("faces") / "state"
            path.mkdir(mode=0o700)
            self._ending.callback(reap_state_dir, path)
            self._ending.enter_context(Service(path, *options))
            self._made[options] = path
        return self._made[options]


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest_asyncio.fixture
async def face(kind: str, request: pytest.FixtureRequest, services: Services) -> AsyncIterator[Face]:
    """Whoever answers, without limits."""
    own: Path = request.getfixturevalue("state_dir")
    async with opened(kind, own if kind in EMBEDDING else services.state_dir()) as made:
        yield made


@pytest_asyncio.fixture
async def narrow(kind: str, request: pytest.FixtureRequest, services: Services) -> AsyncIterator[Face]:
    """Whoever answers, with one slot and a queue for two."""
    own: Path = request.getfixturevalue("state_dir")
    options = ("--max-concurrent-runs", "1", "--max-queued-runs", "2")
    place = own if kind in EMBEDDING else services.state_dir(*options)
    async with opened(kind, place, max_concurrent_runs=1, max_queued_runs=2) as made:
        yield made


@pytest.fixture
def marker() -> Iterator[Marker]:
    """Whatever still carries it after the test is killed."""
    mark = Marker()
    yield mark
    mark.kill()
