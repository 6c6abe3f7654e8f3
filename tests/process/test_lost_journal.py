"""A journal that is gone, old or another's: reading works, nothing is started, recover repairs."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from durable_supervisor import Command, Observer, Supervisor, SupervisorError
from durable_supervisor.model.errors import ErrorCode
from tests.support import PATIENCE

JOURNAL = ("journal.db", "journal.db-wal", "journal.db-shm")
PROGRAM = Command(argv=["sh", "-c", "echo done"], cwd="/")


async def finished(state_dir: Path, request_id: str) -> str:
    """The id of a run that has ended, with every file closed again."""
    async with Supervisor.open(state_dir) as supervisor:
        run = await supervisor.start(PROGRAM, request_id=request_id)
        await supervisor.wait(run.id, timeout=PATIENCE)
    return run.id


def copy_journal(source: Path, target: Path) -> None:
    for name in JOURNAL:
        (target / name).unlink(missing_ok=True)
        if (source / name).exists():
            shutil.copy2(source / name, target / name)


async def refused(state_dir: Path) -> ErrorCode:
    with pytest.raises(SupervisorError) as caught:
        async with Supervisor.open(state_dir):
            pass
    assert "recover" in caught.value.hint
    return caught.value.code


async def assert_recovered(state_dir: Path, runs: dict[str, str]) -> None:
    """Every request id stands for its old run again: nothing can execute twice."""
    await Supervisor.recover(state_dir)
    async with Supervisor.open(state_dir) as supervisor:
        for request_id, run_id in runs.items():
            again = await supervisor.start(PROGRAM, request_id=request_id)
            assert (again.id, again.admission) == (run_id, "existing")
            assert (await supervisor.wait(run_id, timeout=PATIENCE)).outcome is not None


async def test_an_older_journal_is_behind(state_dir: Path, tmp_path: Path) -> None:
    first = await finished(state_dir, "first")
    backup = tmp_path / "backup"
    backup.mkdir()
    copy_journal(state_dir, backup)
    second = await finished(state_dir, "second")
    copy_journal(backup, state_dir)
    assert await refused(state_dir) is ErrorCode.JOURNAL_BEHIND
    async with Observer.open(state_dir) as observer:
        assert (await observer.inspect(second)).request_id == "second"
    await assert_recovered(state_dir, {"first": first, "second": second})


async def test_a_journal_of_another_directory_is_a_mismatch(state_dir: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir(mode=0o700)
    await finished(other, "elsewhere")
    mine = await finished(state_dir, "mine")
    copy_journal(other, state_dir)
    assert await refused(state_dir) is ErrorCode.JOURNAL_MISMATCH
    await assert_recovered(state_dir, {"mine": mine})


async def test_a_missing_journal_is_missed(state_dir: Path, tmp_path: Path) -> None:
    mine = await finished(state_dir, "mine")
    copy_journal(tmp_path, state_dir)
    assert await refused(state_dir) is ErrorCode.JOURNAL_MISSING
    async with Observer.open(state_dir) as observer:
        page = await observer.events(mine, after=0, limit=100)
    assert page.end
    await assert_recovered(state_dir, {"mine": mine})
