"""Fixtures of the contract tests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.contract.runs import Marker, Runs, open_runs


@pytest_asyncio.fixture
async def runs(state_dir: Path) -> AsyncIterator[Runs]:
    async with open_runs(state_dir) as opened:
        yield opened


@pytest.fixture
def marker() -> Iterator[Marker]:
    """Whatever still carries it after the test is killed."""
    mark = Marker()
    yield mark
    mark.kill()
