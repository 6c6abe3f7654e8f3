"""Fixtures of the crash tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.harness import Ledger, end_all
from tests.crash.world import World


@pytest.fixture
def world(state_dir: Path, tmp_path: Path) -> Iterator[World]:
    """A state directory, and a ledger outside it; what its runs leave is ended afterwards."""
    yield World(state_dir, Ledger(tmp_path))
    end_all(state_dir)
