"""Fixtures of the tests of backups and of verify."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.contract.runs import Marker


@pytest.fixture
def marker() -> Iterator[Marker]:
    """Whatever still carries it after the test is killed."""
    mark = Marker()
    yield mark
    mark.kill()
