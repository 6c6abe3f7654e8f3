"""One state directory and the command on it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.helpers import Cli
from tests.cli.terminals import Terminal


@pytest.fixture
def cli(state_dir: Path) -> Cli:
    return Cli(state_dir)


@pytest.fixture
def terminal(state_dir: Path) -> Iterator[Terminal]:
    made = Terminal(state_dir)
    yield made
    made.close()
