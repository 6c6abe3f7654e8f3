"""Fixtures of every suite.  ``from tests.conftest import eventually`` works in any test file."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

from tests.support import eventually, eventually_async, reap_state_dir, running

__all__ = ["eventually", "eventually_async", "reap_state_dir", "running"]

# Real files and processes make single examples slow now and then; that is no finding.
hypothesis.settings.register_profile(
    "default",
    deadline=None,
    print_blob=True,
    suppress_health_check=[
        hypothesis.HealthCheck.too_slow,
        hypothesis.HealthCheck.function_scoped_fixture,
    ],
)
hypothesis.settings.load_profile("default")


@pytest.fixture
def state_dir(tmp_path: Path) -> Iterator[Path]:
    """A private state directory (0700); what its runs left alive is killed afterwards."""
    path = tmp_path / "state"
    path.mkdir(mode=0o700)
    os.chmod(path, 0o700)  # whatever the umask is
    yield path
    reap_state_dir(path)
