"""Fixtures of the policy tests: hostile C programs, and runs under a policy."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.contract.runs import Marker, open_runs
from tests.policy.confined import Confined

_SOURCES = Path(__file__).parent / "hostile"

Hostile = Callable[[str], str]


@pytest.fixture(scope="session")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Hostile:
    """``hostile(name)`` is the path of ``hostile/<name>.c``, compiled once; skips where there is no gcc."""
    gcc = shutil.which("gcc")
    folder = tmp_path_factory.mktemp("hostile")

    def compiled(name: str) -> str:
        if gcc is None:
            pytest.skip("no gcc here to compile the hostile program with")
        program = folder / name
        if not program.exists():
            source = str(_SOURCES / f"{name}.c")
            subprocess.run([gcc, "-O1", "-Wall", "-Werror", "-pthread", "-o", program, source], check=True)
        return str(program)

    return compiled


@pytest_asyncio.fixture
async def confined(state_dir: Path) -> AsyncIterator[Confined]:
    """``await confined(argv, policy, …)`` runs it to its end: see `Confined`."""
    async with open_runs(state_dir) as runs:
        yield Confined(runs)


@pytest.fixture
def marker() -> Iterator[Marker]:
    """Whatever still carries it after the test is killed."""
    mark = Marker()
    yield mark
    mark.kill()
