"""One owner at a time, whichever versions meet: older ones lock by the filelock package, this one without."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from durable_supervisor import ErrorCode, Supervisor
from tests.contract.hosts import HostScript, open_error, works
from tests.lab.forms import FULL
from tests.lab.skew.released import SCHEMAS, code_of
from tests.support import PATIENCE

LAST_WITH_FILELOCK = "f4d3016"
OLDER = [LAST_WITH_FILELOCK, *(SCHEMAS.values() if FULL else ())]
OWNS = """
async with Supervisor.open(STATE):
    report(pid=os.getpid())
    await stay()
"""
ASKS = """
try:
    async with Supervisor.open(STATE, wait=0.1):
        report(code=None)
except SupervisorError as error:
    report(code=error.code.value, pid=error.details["pid"])
"""


def clean(state_dir: Path) -> None:
    """What a cleaner may delete under an owner: it lets nobody else in."""
    for name in ("supervisor.lock", "supervisor.owner"):
        (state_dir / name).unlink()


@pytest.mark.parametrize("commit", OLDER)
async def test_an_older_owner_keeps_this_version_out(state_dir: Path, tmp_path: Path, commit: str) -> None:
    source = code_of(commit, tmp_path / "older")
    with HostScript(OWNS, state_dir, tmp_path, env={"PYTHONPATH": str(source)}) as older:
        pid = older.facts(PATIENCE)["pid"]
        error = await open_error(state_dir, ErrorCode.STATE_DIR_IN_USE)
        assert error.details["pid"] == pid
        clean(state_dir)
        await open_error(state_dir, ErrorCode.STATE_DIR_IN_USE, wait=0.1)
        older.kill()
        await works(state_dir)


@pytest.mark.parametrize("commit", OLDER)
async def test_an_owner_of_this_version_keeps_older_ones_out(
    state_dir: Path, tmp_path: Path, commit: str
) -> None:
    source = code_of(commit, tmp_path / "older")

    def asked() -> dict[str, object]:
        with HostScript(ASKS, state_dir, tmp_path, env={"PYTHONPATH": str(source)}) as older:
            return older.finish(PATIENCE)

    async with Supervisor.open(state_dir):
        assert asked() == {"code": ErrorCode.STATE_DIR_IN_USE.value, "pid": os.getpid()}
        clean(state_dir)
        assert asked() == {"code": ErrorCode.STATE_DIR_IN_USE.value, "pid": None}
    await works(state_dir)
