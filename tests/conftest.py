"""Fixtures of every suite.  ``from tests.conftest import eventually`` works in any test file."""

from __future__ import annotations

import os
import signal
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


def pytest_configure() -> None:
    """Programs inherit ignored signals: under nohup or behind a shell's ``&`` none would die of them."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture
def state_dir(tmp_path: Path) -> Iterator[Path]:
    """A private state directory (0700); what its runs left alive is killed afterwards."""
    path = tmp_path / "state"
    path.mkdir(mode=0o700)
    os.chmod(path, 0o700)  # whatever the umask is
    yield path
    reap_state_dir(path)
