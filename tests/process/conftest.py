"""Fixtures of the process tests."""

from __future__ import annotations

import pytest

from tests.process.test_zygote import zygotes
from tests.support import eventually


@pytest.fixture
def no_zygotes() -> None:
    """None is left of the tests before: a zygote ends a moment after its supervisor has closed."""
    eventually(lambda: not zygotes(), message="a zygote outlives its supervisor")
