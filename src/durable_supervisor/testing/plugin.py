"""The pytest plugin: fixtures for tests of an application that starts programs.

It is loaded wherever this package and pytest are installed, so it imports what a fixture needs in
that fixture, and nothing at all before.  Fixtures are plain ones: they work under any asyncio plugin, and
under none.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .crash import CrashInjector
    from .fake import FakePrograms
    from .hosted import HostedSupervisor

LEAK_MARKER = "durable_leaks"
_PATIENCE = 5.0  # seconds that a worker whose run is over has to be gone


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        f"{LEAK_MARKER}: runs that this test leaves behind are ended without a word (durable_supervisor)",
    )


@pytest.fixture
def durable_state_dir(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Path]:
    """A state directory of the test's own, which is the default one while the test runs.

    So an application under test that names none uses it, and never the user's.  What its runs left
    alive afterwards is ended, and fails the test, unless it is marked ``durable_leaks``.
    """
    from . import leftovers

    path = tmp_path / "durable-state"
    path.mkdir(mode=0o700)
    os.chmod(path, 0o700)  # whatever the umask is
    monkeypatch.setenv("DURABLE_SUPERVISOR_STATE_DIR", str(path))
    monkeypatch.delenv("DURABLE_SUPERVISOR_SOCKET", raising=False)
    yield path
    _let_go_of(path)
    tolerated = request.node.get_closest_marker(LEAK_MARKER) is not None
    leaks = {} if tolerated else leftovers.leaked(path, _PATIENCE)
    leftovers.end_all(path)
    survivors = leftovers.survivors(path, _PATIENCE)
    if survivors:
        pytest.fail(_message("which could not be ended", survivors), pytrace=False)
    if leaks:
        pytest.fail(_message("which were ended now", leaks), pytrace=False)


@pytest.fixture
def durable_supervisor(durable_state_dir: Path) -> HostedSupervisor:
    """A supervisor of that directory, for sync tests (``.sync``) and for async ones of any plugin.

    It lives in a thread of its own, and is the one that `run`, `stream` and `spawn` use in this test.
    """
    from .hosted import HostedSupervisor

    return HostedSupervisor()


@pytest.fixture
def fake_program(tmp_path: Path) -> FakePrograms:
    """``fake_program()``: an executable made of steps, which keeps a ledger of what it got."""
    from .fake import FakePrograms

    return FakePrograms(tmp_path / "fake-programs")


@pytest.fixture
def crash_injector(durable_state_dir: Path, tmp_path: Path) -> Iterator[CrashInjector]:
    """Runs the host part of a test in a process that is killed, and kills parts of a run."""
    from .crash import CrashInjector

    injector = CrashInjector(durable_state_dir, tmp_path / "crash-hosts")
    yield injector
    injector.close()


def _let_go_of(state_dir: Path) -> None:
    """The session that `run` and its like share has it open, if anything of the product was used."""
    used = sys.modules.get("durable_supervisor.api.shared")
    if used is not None:
        used.shared().release(state_dir)


def _message(what: str, runs: dict[str, str]) -> str:
    lines = [f"  {run_id}: {alive}" for run_id, alive in sorted(runs.items())]
    return "\n".join([f"the test left runs behind, {what}:", *lines])
