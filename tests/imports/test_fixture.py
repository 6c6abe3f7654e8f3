"""Imported runs and a bundle of format 1, as its own release made them: readable for ever, untouched."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest

from durable_supervisor import ErrorCode, Observer, RunState, Supervisor
from durable_supervisor.bundle.reader import BundleReader
from durable_supervisor.upkeep.verify import verify
from tests.contract.hosts import refused

PACKED = Path(__file__).parents[1] / "fixtures" / "imported" / "format-1.tar.xz"


@pytest.fixture
def home(state_dir: Path) -> Path:
    with tarfile.open(PACKED) as tar:
        tar.extractall(state_dir)  # our own: its members are known
    for path in (state_dir / "imported").rglob("*"):
        path.chmod(0o700 if path.is_dir() else 0o600)
    (state_dir / "imported").chmod(0o700)
    [found] = (state_dir / "imported").iterdir()
    return found


async def test_a_folder_of_format_1(state_dir: Path, home: Path) -> None:
    async with Supervisor.open(state_dir) as sup:
        [seen] = (await sup.list()).runs
        assert (seen.request_id, seen.labels, seen.serial) == ("nightly", {"team": "infra"}, 1)
        assert seen.imported is not None
        assert seen.outcome is not None
        assert (seen.state, seen.outcome.code) == (RunState.FINISHED, 3)
        events = (await sup.events(seen.id)).events
        assert {event.data for event in events if event.kind == "output"} == {b"out\n", b"err\n"}
        assert (await sup.import_(home / "bundle.zip")).admission == "already"
    assert (await verify(state_dir)).findings == []


async def test_a_bundle_of_format_1(home: Path, elsewhere: Path) -> None:
    bundle = str(home / "bundle.zip")
    async with BundleReader(bundle) as reader:
        assert (await reader.events(bundle)).end
    assert (await verify(bundle)).findings == []
    async with Supervisor.open(elsewhere) as sup:
        assert (await sup.import_(bundle)).admission == "imported"


async def test_a_folder_of_a_newer_format(state_dir: Path, home: Path) -> None:
    mark = json.loads((home / "import.json").read_text())
    (home / "import.json").write_text(json.dumps({**mark, "format": 2}))
    async with Observer.open(state_dir) as seen:
        assert (await seen.list()).runs == []
        async with refused(ErrorCode.STATE_DIR_REFUSED) as caught:
            await seen.inspect(home.name.partition(".")[2])
    assert "newer" in caught().message
