"""A directory from which runs were exported, and one to import them into."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio

from durable_supervisor import RunView, Supervisor
from tests.cli.conftest import cli, terminal
from tests.contract.runs import Marker
from tests.imports.bundles import exported, finished
from tests.support import reap_state_dir

__all__ = ["cli", "terminal"]  # fixtures, which pytest finds here by their names


@dataclass
class Theirs:
    """A finished run of another directory, and its bundle."""

    state_dir: Path
    view: RunView
    bundle: Path


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def theirs(tmp_path_factory: pytest.TempPathFactory) -> Theirs:
    folder = tmp_path_factory.mktemp("theirs")
    place = folder / "state"
    async with Supervisor.open(place) as sup:
        view = await finished(sup, labels={"team": "theirs"})
    return Theirs(place, view, exported(place, view.id, folder / "run.zip"))


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[Path]:
    """Another private state directory."""
    path = tmp_path / "elsewhere"
    path.mkdir(mode=0o700)
    os.chmod(path, 0o700)
    yield path
    reap_state_dir(path)


@pytest.fixture
def marker() -> Iterator[Marker]:
    """Whatever still carries it after the test is killed."""
    mark = Marker()
    yield mark
    mark.kill()
