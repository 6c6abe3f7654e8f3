"""Fixtures of the unit tests."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator

import pytest


@pytest.fixture
def printed() -> Iterator[list[object]]:
    """What the interpreter would print, warnings and what nobody could raise: it has to be nothing."""
    found: list[object] = []
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        patch.setattr("sys.unraisablehook", found.append)
        yield found
        gc.collect()
        found.extend(warned)
        assert found == []
