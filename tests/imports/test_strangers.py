"""Bundles that are damaged, made up or hostile: refused by a typed error, and nothing of them is kept."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from durable_supervisor import ErrorCode, Phase, RunState, Supervisor, SupervisorError
from durable_supervisor.bundle import check_log
from durable_supervisor.runlog import files, tail, walk
from durable_supervisor.runlog.paths import RunPaths, SegmentKey, segment_name
from durable_supervisor.supervisor.imports.imported import Imports
from durable_supervisor.supervisor.imports.workshop import Workshop
from durable_supervisor.supervisor.state.state_dir import StateDir
from tests.bundle.test_archive import WRONG, Maker
from tests.contract.hosts import refused
from tests.imports.bundles import Change, finished, imported, remade, saying, together
from tests.imports.conftest import Theirs


@pytest_asyncio.fixture
async def sup(state_dir: Path) -> AsyncIterator[Supervisor]:
    async with Supervisor.open(state_dir) as opened:
        yield opened


async def check_nothing_of_it(sup: Supervisor) -> None:
    assert imported(Path(sup.state_dir)) == []
    assert (await sup.list()).runs == []


# These are wrong only for who believes them: a made-up bundle is never whole.
@pytest.mark.parametrize("make", [case[1] for case in WRONG], ids=[case[0] for case in WRONG])
async def test_what_no_reader_takes(make: Maker, sup: Supervisor, tmp_path: Path) -> None:
    make(tmp_path / "b")
    async with refused(ErrorCode.INVALID_REQUEST) as caught:
        await sup.import_(tmp_path / "b")
    assert caught().details["field"] == "bundle"
    await check_nothing_of_it(sup)


def _without(*names: str) -> Change:
    return lambda found: [found.pop(name) for name in names]


def _without_log(found: dict[str, bytes]) -> None:
    for name in [name for name in found if name.endswith(".log")]:
        del found[name]


def _flipped(found: dict[str, bytes]) -> None:
    for name in [name for name in found if name.endswith(".log")]:
        at = found[name].index(b"out\n")
        found[name] = found[name][:at] + b"OUT\n" + found[name][at + 4 :]


def _told_twice(found: dict[str, bytes]) -> None:
    """Its owner is one for who takes the first, another for who takes the last."""
    found["run.json"] = b'{"owner": "root", ' + found["run.json"].lstrip()[1:]


GOOD = {"kind": "exited", "code": 0, "signal": None}


def _ended_well(found: dict[str, bytes]) -> None:
    """It left with 3, and with 0 by the word of all but its log and its row."""
    receipt = {**json.loads(found["receipt.json"]), "outcome": GOOD}
    found["receipt.json"] = json.dumps(receipt).encode()
    saying("run.json", outcome=GOOD, receipt=receipt)(found)


def nested(depth: int) -> dict[str, object]:
    return {"in": nested(depth - 1)} if depth else {}


LIES: dict[str, Change] = {
    "no run": _without("run.json"),
    "no journal": _without("journal.json"),
    "no log": _without_log,
    "other output": _flipped,
    "another owner": saying("run.json", owner="me"),
    "another request": saying("journal.json", run__request_id="mine"),
    "another state": saying("run.json", state="unknown"),
    "another end": saying("journal.json", run__outcome={"kind": "exited", "code": 0, "signal": None}),
    "no end": saying("run.json", outcome=None),
    "another receipt": saying("run.json", receipt={"outcome": {}}),
    "imported twice": saying(
        "run.json",
        imported={
            "directory_id": None, "imported_at": "2026-01-01T00:00:00.000000Z", "by_uid": 0, "version": "1",
            "sha256": "0",
        },
    ),
    "collected": saying("journal.json", run__collected_ns=5),
    "labels of no form": saying("journal.json", run__labels=[1]),
    "a state of no form": saying("journal.json", run__state="winning"),
    "a number of no form": saying("journal.json", run__attempt="1"),
    "a row without fields": saying("journal.json", run={}),
    "attempts of no form": saying("journal.json", attempts=[{"attempt": 1}]),
    "changes of no form": saying("journal.json", feed=[5]),
    "words of no form": saying("journal.json", resolutions=[{"time": "now", "document": 5}]),
    "no row": saying("journal.json", run=None),
    "a time beyond time": saying("run.json", created_at="9999999999"),
    "logs elsewhere": saying("journal.json", run__shard="../../../../runs/0000"),
    "logs of the whole disk": saying("journal.json", run__shard="/tmp"),
    "another command": saying("run.json", argv=["true"]),
    "other labels": saying("run.json", labels={"team": "mine"}),
    "another time": saying("run.json", created_at="2020-01-01T00:00:00.000000Z"),
    "an end of three documents": _ended_well,
    "an end not in its journal": together(_ended_well, saying("journal.json", run__state="running")),
    "a name that is there twice": _told_twice,
    "an outcome beside its receipt": saying("run.json", outcome=GOOD),
    "collected since": saying("run.json", collected_at="2026-01-01T00:00:00.000000Z"),
    "true for a number": saying("run.json", head=True),
    "no number": saying("run.json", evidence={"load": float("nan")}),
    "a number beyond all": saying("run.json", evidence={"load": float("inf")}),
    "a number of 400 digits": saying("run.json", evidence={"load": 10**400}),
    "nested deeper than any reader goes": saying("run.json", evidence=nested(500)),
}  # fmt: skip


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
async def test_documents_that_contradict(
    lie: Change, sup: Supervisor, theirs: Theirs, tmp_path: Path
) -> None:
    """Every digest is right; what is said is not."""
    bundle = remade(theirs.bundle, tmp_path / "b", lie)
    async with refused(ErrorCode.INVALID_REQUEST) as caught:
        await sup.import_(bundle)
    assert caught().details["path"] == str(bundle)
    await check_nothing_of_it(sup)


@pytest.mark.parametrize(
    "said", [{"open": True}, {"state": "running"}, {"head": 5}, {"attempts": 2}], ids=str
)
async def test_a_manifest_that_lies(
    said: dict[str, object], sup: Supervisor, theirs: Theirs, tmp_path: Path
) -> None:
    async with refused(ErrorCode.INVALID_REQUEST):
        await sup.import_(remade(theirs.bundle, tmp_path / "b", lambda found: None, **said))
    await check_nothing_of_it(sup)


@pytest.mark.parametrize(("before", "behind"), [(b"#!/bin/sh\n", b""), (b"", b"x" * 50), (b"", b"\0" * 50)])
async def test_a_bundle_that_is_something_else_too(
    before: bytes, behind: bytes, sup: Supervisor, theirs: Theirs, tmp_path: Path
) -> None:
    (tmp_path / "b").write_bytes(before + theirs.bundle.read_bytes() + behind)
    async with refused(ErrorCode.INVALID_REQUEST) as caught:
        await sup.import_(tmp_path / "b")
    assert "before or behind" in caught().message
    await check_nothing_of_it(sup)


async def test_more_than_there_is_room_for(
    sup: Supervisor, theirs: Theirs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("durable_supervisor.bundle.unpack.FREE_BYTES", 1 << 62)
    async with refused(ErrorCode.NO_SPACE):
        await sup.import_(theirs.bundle)
    await check_nothing_of_it(sup)


async def test_a_bundle_that_becomes_a_link(sup: Supervisor, theirs: Theirs, tmp_path: Path) -> None:
    """A link to a bundle is a bundle; the folder of imports is never one of somebody's."""
    (tmp_path / "link").symlink_to(theirs.bundle)
    (tmp_path / "outside").mkdir()
    os.symlink(tmp_path / "outside", Path(sup.state_dir) / "imported")
    async with refused(ErrorCode.STATE_DIR_REFUSED):
        await sup.import_(tmp_path / "link")
    assert list((tmp_path / "outside").iterdir()) == []
    os.unlink(Path(sup.state_dir) / "imported")
    assert (await sup.import_(tmp_path / "link")).admission == "imported"


async def test_the_directory_goes_on(sup: Supervisor, tmp_path: Path) -> None:
    (tmp_path / "b").write_bytes(b"PK\x03\x04" * 1000)
    async with refused(ErrorCode.INVALID_REQUEST):
        await sup.import_(tmp_path / "b")
    assert (await finished(sup)).state is RunState.FINISHED


async def test_one_that_is_broken_off(sup: Supervisor, theirs: Theirs) -> None:
    """Wherever it is in its work: who closes the supervisor waits for no more than a piece of it."""

    class LeavingError(SupervisorError):
        """An owner that goes."""

    async def stage(most: int) -> int:
        asked = 0

        def check() -> None:
            nonlocal asked
            asked += 1
            if asked > most:
                raise LeavingError(ErrorCode.SUPERVISOR_CLOSED, "", phase=Phase.ADMIT)

        workshop = Workshop(StateDir(sup.state_dir), check)
        try:
            await asyncio.to_thread(workshop.stage, str(theirs.bundle))
        finally:
            workshop.clear()
        return asked

    needed = await stage(1 << 30)
    assert needed > 10, "also while its log is read"
    for most in range(needed):
        with pytest.raises(LeavingError):
            await stage(most)
    await check_nothing_of_it(sup)


async def test_segments_without_end(sup: Supervisor, theirs: Theirs, tmp_path: Path) -> None:
    """Each is looked at once: a list of all of them for each would take hours."""

    def segments(found: dict[str, bytes]) -> None:
        [log] = [name for name in found if name.endswith(".log")]
        found.update({f"{log[:-4]}.seg/{segment_name((100 + n, 0, 0))}": b"x" for n in range(500)})

    listed = 0

    def list_segments(paths: RunPaths, attempt: int) -> list[SegmentKey]:
        nonlocal listed
        listed += 1
        return files.list_segments(paths, attempt)

    with pytest.MonkeyPatch.context() as patch:
        for module in (walk, tail, check_log):
            patch.setattr(module, "list_segments", list_segments)
        async with refused(ErrorCode.INVALID_REQUEST):
            await sup.import_(remade(theirs.bundle, tmp_path / "b", segments))
    assert 0 < listed < 10
    await check_nothing_of_it(sup)


async def test_what_is_large_is_not_remembered(sup: Supervisor, theirs: Theirs, tmp_path: Path) -> None:
    """It costs who asks for it, and no memory for good."""
    words = {"words": "x" * 100_000}
    large = together(saying("run.json", evidence=words), saying("journal.json", run__evidence=words))
    await sup.import_(remade(theirs.bundle, tmp_path / "b", large))
    imports = Imports(str(Path(sup.state_dir) / "imported"))
    [home] = imports.find("")
    assert imports.row(home).view.evidence == words
    assert imports.row(home) is not imports.row(home)
