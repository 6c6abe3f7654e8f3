"""What becomes of imported runs when a directory is collected, copied and checked."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import pytest_asyncio

from durable_supervisor import ErrorCode, Supervisor
from durable_supervisor.upkeep.backup import backup
from durable_supervisor.upkeep.verify import verify
from tests.contract.hosts import flip, refused
from tests.gc.aging import age
from tests.imports.bundles import finished, imported
from tests.imports.conftest import Theirs


class Kept:
    """A directory at rest that has a run of its own and an imported one."""

    def __init__(self, state_dir: Path, own: str, run_id: str) -> None:
        self.state_dir = state_dir
        self.own = own
        self.run_id = run_id

    @property
    def home(self) -> Path:
        return self.state_dir / "imported" / f"2.{self.run_id}"

    def age(self, hours: int = 1) -> None:
        """Let it have been imported so much earlier."""
        mark = json.loads((self.home / "import.json").read_text())
        earlier = datetime.fromisoformat(mark["imported_at"]) - timedelta(hours=hours)
        mark["imported_at"] = earlier.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        (self.home / "import.json").write_text(json.dumps(mark))


@pytest_asyncio.fixture
async def kept(state_dir: Path, theirs: Theirs) -> Kept:
    async with Supervisor.open(state_dir) as sup:
        own = await finished(sup, "own")
        await sup.import_(theirs.bundle)
    return Kept(state_dir, own.id, theirs.view.id)


async def test_it_is_collected_by_the_time_since_its_import(kept: Kept, theirs: Theirs) -> None:
    async with Supervisor.open(kept.state_dir) as sup:
        assert (await sup.gc(keep=0)).kept == {"young": 2}
    age(kept.state_dir)
    kept.age()
    async with Supervisor.open(kept.state_dir) as sup:
        plan = await sup.gc(keep=0)
        assert {(one.run_id, one.imported) for one in plan.runs} == {(kept.own, False), (kept.run_id, True)}
        other = await sup.gc(keep=0, label=("team", "theirs"), apply=True)
        assert [one.run_id for one in other.runs] == [kept.run_id]
        assert (other.left, imported(kept.state_dir)) == (0, [])
        for verb in (sup.inspect, sup.events):
            async with refused(ErrorCode.UNKNOWN_RUN):
                await verb(kept.run_id)
        # Nothing is left of it: it may come again.
        assert (await sup.import_(theirs.bundle)).admission == "imported"
        assert (await sup.gc(keep=0, apply=True)).count == 1
        assert (await sup.inspect(kept.run_id)).serial == 3
    assert (await verify(kept.state_dir)).findings == []


async def test_a_reader_while_it_is_collected(kept: Kept) -> None:
    kept.age()
    async with Supervisor.open(kept.state_dir) as sup:
        following = sup.follow(kept.run_id)
        assert (await anext(following)).seq == 1
        assert (await sup.gc(label=("team", "theirs"), apply=True)).count == 1
        async with refused(ErrorCode.UNKNOWN_RUN):
            await sup.events(kept.run_id)
        assert [event.seq async for event in following][-1] == 7, "what was read already comes"


async def test_a_backup_has_it(kept: Kept, tmp_path: Path) -> None:
    report = await backup(tmp_path / "copy", state_dir=kept.state_dir)
    assert (report.runs, report.imported, report.left_out) == (1, 1, {})
    found = await verify(tmp_path / "copy")
    assert (found.subject, found.findings, found.runs) == ("backup", [], 2)
    async with Supervisor.open(tmp_path / "copy") as copy:
        seen = await copy.inspect(kept.run_id)
        assert seen.imported is not None
        assert (await copy.events(kept.run_id)).end
        assert [view.id for view in (await copy.list()).runs] == [kept.run_id, kept.own]


async def test_a_backup_leaves_out_what_cannot_be_read(kept: Kept, tmp_path: Path) -> None:
    (kept.home / "run.json").write_text("{")
    report = await backup(tmp_path / "copy", state_dir=kept.state_dir)
    assert (report.imported, list(report.left_out)) == (0, [kept.run_id])
    assert (await verify(tmp_path / "copy")).findings == []


async def test_all_is_well(kept: Kept) -> None:
    found = await verify(kept.state_dir)
    assert (found.findings, found.runs, found.events) == ([], 2, 14)


FILES = ("bundle.zip", "run.json", "journal.json", "import.json", "log")


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("damage", ["flipped", "cut", "gone"])
async def test_damage_is_found(kept: Kept, name: str, damage: str) -> None:
    path = next(kept.home.rglob("*.log")) if name == "log" else kept.home / name
    if damage == "flipped":
        flip(path, path.stat().st_size // 2)
    elif damage == "cut":
        path.write_bytes(path.read_bytes()[:-30])
    else:
        path.unlink()
    found = await verify(kept.state_dir)
    if (name, damage) != ("import.json", "flipped"):  # that byte may be a word that nothing holds against
        assert {(one.severity, one.run_id) for one in found.findings} == {("error", kept.run_id)}
    # It harms itself alone.
    async with Supervisor.open(kept.state_dir) as sup:
        assert kept.own in [view.id for view in (await sup.list()).runs]
        assert (await finished(sup, "again")).state == "finished"


@pytest.mark.parametrize("name", ["notes.txt", "runs/0000/{run}.a1.seg/0000000000000004.log", "runs/0000/x"])
async def test_what_does_not_belong_there_is_found(kept: Kept, name: str) -> None:
    path = kept.home / name.format(run=kept.run_id)
    path.parent.mkdir(mode=0o700, exist_ok=True)
    path.touch(mode=0o600)
    codes = {one.code for one in (await verify(kept.state_dir)).findings}
    assert "import_differs" in codes
