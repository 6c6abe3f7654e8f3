"""One state directory and the command on it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.helpers import Cli


@pytest.fixture
def cli(state_dir: Path) -> Cli:
    return Cli(state_dir)
