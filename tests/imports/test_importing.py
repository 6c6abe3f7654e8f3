"""An imported run is read as its own directory would show it, and is nothing more than that."""

from __future__ import annotations

import asyncio
import hashlib
import os
from pathlib import Path

import pytest

from durable_supervisor import Command, ErrorCode, Observer, RunState, Supervisor, SupervisorError
from durable_supervisor.bundle.reader import BundleReader
from durable_supervisor.upkeep.verify import verify
from durable_supervisor.wire.documents import validate
from tests.contract.hosts import flip, log_of, refused
from tests.contract.runs import Marker
from tests.imports.bundles import exported, finished, imported, remade, saying, together
from tests.imports.conftest import Theirs
from tests.support import eventually_async


async def test_it_is_read_as_its_bundle(state_dir: Path, theirs: Theirs) -> None:
    async with Supervisor.open(state_dir) as sup:
        report = await sup.import_(theirs.bundle)
        validate("import", report.to_dict())
        assert (report.admission, report.run_id, report.state) == ("imported", theirs.view.id, "finished")
        assert report.bundle == str(theirs.bundle)
    async with Observer.open(state_dir) as here, BundleReader(str(theirs.bundle)) as there:
        seen, original = await here.inspect(theirs.view.id[:6]), theirs.view
        mark = seen.imported
        assert mark is not None
        assert (mark.directory_id, mark.by_uid) == (report.directory_id, os.getuid())
        assert mark.sha256 == hashlib.sha256(theirs.bundle.read_bytes()).hexdigest()
        different = {"imported", "serial"}
        form, same = seen.to_dict(), original.to_dict()
        assert {name for name in form if form[name] != same[name]} <= different
        validate("inspect", form)
        validate("list", (await here.list()).to_dict())
        for after in (0, 3):
            page, other = await here.events(seen.id, after=after), await there.events(seen.id, after=after)
            assert (page.events, page.head, page.end) == (other.events, other.head, other.end)
        assert [one async for one in here.follow(seen.id)] == [one async for one in there.follow(seen.id)]
        assert (await here.wait(seen.id)).outcome == original.outcome
        found = await here.audit(seen.id, ["err\nexit 3"])
        assert (found.run_id, found.problems) == (seen.id, ())
        async with here.attach(seen.id) as viewer:
            assert [event.seq async for event in viewer][-1] == seen.head


async def test_no_request_id_is_spent(state_dir: Path, theirs: Theirs) -> None:
    """The same id and owner, the same program even: it is another run, and executed here, once."""
    async with Supervisor.open(state_dir) as sup:
        await sup.import_(theirs.bundle)
        mine = await finished(sup, "theirs", labels={"team": "theirs"})
        assert mine.id != theirs.view.id
        again = await sup.start(Command(argv=list(mine.argv)), request_id="theirs", labels={"team": "theirs"})
        assert (again.id, again.admission) == (mine.id, "existing")
        assert {view.id for view in (await sup.list()).runs} == {mine.id, theirs.view.id}


async def test_the_same_again_changes_nothing(state_dir: Path, theirs: Theirs) -> None:
    async with Supervisor.open(state_dir) as sup:
        await sup.import_(theirs.bundle)
        before = imported(state_dir)
        report = await sup.import_(theirs.bundle)
        assert (report.admission, report.run_id) == ("already", theirs.view.id)
        assert imported(state_dir) == before


async def test_the_directorys_own_is_known(theirs: Theirs) -> None:
    async with Supervisor.open(theirs.state_dir) as sup:
        report = await sup.import_(theirs.bundle)
        assert (report.admission, report.run_id, report.state) == ("own", theirs.view.id, "finished")
        assert (await sup.inspect(theirs.view.id)).imported is None
    assert imported(theirs.state_dir) == []


async def test_another_run_under_a_known_id(state_dir: Path, theirs: Theirs, tmp_path: Path) -> None:
    """Known as an import, as an own run, and as one that this very directory should know."""
    other = remade(theirs.bundle, tmp_path / "other.zip", saying("journal.json", run__updated_ns=5))
    async with Supervisor.open(state_dir) as sup:
        await sup.import_(theirs.bundle)
        async with refused(ErrorCode.IMPORT_CONFLICT) as caught:
            await sup.import_(other)
        assert caught().details["run_id"] == theirs.view.id
        mine = await finished(sup)
        ours = exported(state_dir, mine.id, tmp_path / "ours.zip")
        at_another_time = together(
            saying("journal.json", run__created_ns=5),
            saying("run.json", created_at="1970-01-01T00:00:00.000000Z"),
        )
        lying = remade(ours, tmp_path / "lying.zip", at_another_time)
        async with refused(ErrorCode.IMPORT_CONFLICT):
            await sup.import_(lying)
        assert (await sup.inspect(mine.id)).imported is None
    for path in [*state_dir.glob("journal.db*"), *state_dir.glob("runs/*/*.log")]:
        path.unlink()
    async with Supervisor.open(state_dir) as sup:
        assert (await sup.import_(ours)).admission == "imported", "a directory that has begun anew is another"


async def test_a_run_that_the_journal_has_lost(state_dir: Path, tmp_path: Path) -> None:
    """Readable as an import its request id would be free: it is refused, not run again."""
    async with Supervisor.open(state_dir) as sup:
        first = await finished(sup, "first")
    older = {path: path.read_bytes() for path in state_dir.glob("journal.db*")}
    async with Supervisor.open(state_dir) as sup:
        lost = await finished(sup, "lost")
        bundle = exported(state_dir, lost.id, tmp_path / "lost.zip")
    for path in state_dir.glob("journal.db*"):
        path.unlink()
    for path, data in older.items():
        path.write_bytes(data)
    log_of(state_dir, lost.id).unlink()
    async with Supervisor.open(state_dir) as sup:
        assert (await sup.inspect(first.id)).state is RunState.FINISHED
        async with refused(ErrorCode.IMPORT_CONFLICT):
            await sup.import_(bundle)
    assert imported(state_dir) == []


async def test_nothing_of_it_is_in_reach(state_dir: Path, theirs: Theirs) -> None:
    async with Supervisor.open(state_dir) as sup:
        await sup.import_(theirs.bundle)
        run = theirs.view.id
        for call in (
            sup.stop(run), sup.signal(run, "TERM"), sup.write_stdin(run, b"x"), sup.resize(run, 80, 24),
        ):  # fmt: skip
            async with refused(ErrorCode.NOT_RUNNING):
                await call
        async with refused(ErrorCode.NOT_RESOLVABLE):
            await sup.resolve(run)
        await sup.acknowledge(run, stdout=1)
        assert (await sup.reconcile()).judged == 0


async def test_an_owners_name_is_a_word_of_its_directory(state_dir: Path, theirs: Theirs) -> None:
    """Who may only see an owner's runs is not shown those that came under the same name."""
    owner = theirs.view.owner
    async with Supervisor.open(state_dir) as sup:
        await sup.import_(theirs.bundle)
        mine = await finished(sup, owner=owner)
        assert [view.id for view in (await sup.list(owner=owner)).runs] == [mine.id]
        for word in (theirs.view.id, theirs.view.id[:9]):
            async with refused(ErrorCode.UNKNOWN_RUN):
                await sup.find(word, owner=owner)
            assert await sup.find(word) == theirs.view.id


async def test_a_run_that_went_on_stays_as_it_was(
    state_dir: Path, elsewhere: Path, tmp_path: Path, marker: Marker
) -> None:
    """It is ``running`` for good, by the word of its bundle: nobody waits for it, and no slot is held."""
    async with Supervisor.open(elsewhere) as sup:
        command = Command(argv=["sh", "-c", f"echo begun; exec sleep {marker}"])
        run = await sup.start(command, request_id="open")

        async def has_begun() -> bool:
            return any(event.kind == "output" for event in (await sup.events(run.id)).events)

        await eventually_async(has_begun)
        bundle = exported(elsewhere, run.id, tmp_path / "open.zip")
        await sup.stop(run.id, grace=0)
        later = exported(elsewhere, run.id, tmp_path / "later.zip")
    async with Supervisor.open(state_dir, max_concurrent_runs=1) as here:
        assert (await here.import_(bundle)).state == "running"
        async with refused(ErrorCode.OUTCOME_UNKNOWN):
            await here.wait(run.id)
        seen = await here.inspect(run.id)
        assert (seen.state, seen.live) == (RunState.RUNNING, None)
        events = [event async for event in here.follow(run.id)]
        assert events[-1].seq == (await here.events(run.id)).head
        async with refused(ErrorCode.NOT_RUNNING):
            await here.stop(run.id)
        assert (await finished(here)).state is RunState.FINISHED
        assert here.capacity().held == 0
        async with refused(ErrorCode.IMPORT_CONFLICT):
            await here.import_(later)
        report = await here.gc(keep=0)
        assert report.kept["open"] == 1


async def test_it_has_a_place_in_the_list(state_dir: Path, theirs: Theirs) -> None:
    """Where it was imported, at any page size; also for the next owner, and whatever was asked for."""
    async with Supervisor.open(state_dir) as sup:
        first = await finished(sup, "first")
        await sup.import_(theirs.bundle)
    async with Supervisor.open(state_dir) as sup:
        second = await finished(sup, "second")
        for limit in (1, 2, 3, 10):
            ids: list[str] = []
            before = None
            while True:
                page = await sup.list(limit=limit, before=before)
                ids += [view.id for view in page.runs]
                before = page.next_before
                if before is None:
                    break
            assert ids == [second.id, theirs.view.id, first.id]
        assert [view.id for view in (await sup.list(label=("team", "theirs"))).runs] == [theirs.view.id]
        assert len((await sup.list(states=[RunState.FINISHED])).runs) == 3
        assert (await sup.list(states=[RunState.RUNNING])).runs == []


@pytest.mark.parametrize("text", ["", "[]", "[" * 100_000, '{"state": ["finished"], "labels": 3}', "{"])
async def test_a_filter_passes_over_one_that_is_damaged(state_dir: Path, theirs: Theirs, text: str) -> None:
    async with Supervisor.open(state_dir) as sup:
        mine = await finished(sup, "mine")
        await sup.import_(theirs.bundle)
    (document,) = state_dir.glob("imported/*/run.json")
    document.write_text(text)
    async with Observer.open(state_dir) as reading:
        assert [view.id for view in (await reading.list(states=[RunState.FINISHED])).runs] == [mine.id]
        assert (await reading.list(label=("team", "theirs"))).runs == []


async def test_a_lost_journal_leaves_it_what_it_was(state_dir: Path, theirs: Theirs) -> None:
    async with Supervisor.open(state_dir) as sup:
        mine = await finished(sup, "mine")
        await sup.import_(theirs.bundle)
    for path in state_dir.glob("journal.db*"):
        path.unlink()
    async with Observer.open(state_dir) as reading:
        assert [view.id for view in (await reading.list()).runs] == [theirs.view.id, mine.id]
    report = await Supervisor.recover(state_dir)
    assert (report["added"], report["conflicts"]) == ([mine.id], [])
    async with Supervisor.open(state_dir) as sup:
        assert (await sup.inspect(theirs.view.id)).imported is not None
        assert (await finished(sup, "theirs")).serial == 3


async def test_a_damaged_log_that_is_called_so(state_dir: Path, elsewhere: Path, tmp_path: Path) -> None:
    """What an export could not help is no reason to refuse what there is."""
    async with Supervisor.open(elsewhere) as sup:
        run = await finished(sup)
    log = log_of(elsewhere, run.id)
    flip(log, log.read_bytes().index(b"out\n"))
    damaged = exported(elsewhere, run.id, tmp_path / "damaged.zip")
    async with Supervisor.open(state_dir) as sup:
        assert (await sup.import_(damaged)).admission == "imported"
        seen = await sup.inspect(run.id)
        assert seen.log_health is not None
        # The same damage under a bundle that says nothing of it was done to the bundle.
        silent = remade(damaged, tmp_path / "silent.zip", saying("run.json", log_health=None))
        async with refused(ErrorCode.INVALID_REQUEST):
            await sup.import_(silent)


async def test_a_log_that_is_gone(state_dir: Path, elsewhere: Path, tmp_path: Path) -> None:
    async with Supervisor.open(elsewhere) as sup:
        run = await finished(sup)
    log_of(elsewhere, run.id).unlink()
    bundle = exported(elsewhere, run.id, tmp_path / "without.zip")
    async with Supervisor.open(state_dir) as sup:
        report = await sup.import_(bundle)
        assert (report.admission, report.directory_id) == ("imported", None)
        assert (await sup.inspect(run.id)).state is RunState.FINISHED


async def test_ids_that_begin_alike(state_dir: Path, theirs: Theirs) -> None:
    """A beginning that two runs share names both, wherever they come from."""
    async with Supervisor.open(state_dir) as sup:
        await sup.import_(theirs.bundle)
        while True:
            run = await sup.start(Command(argv=["/no/such/program"]))
            if run.id[0] == theirs.view.id[0]:
                break
        async with refused(ErrorCode.AMBIGUOUS_RUN) as caught:
            await sup.inspect(run.id[0])
        assert {run.id, theirs.view.id} <= set(caught().details["candidates"])  # type: ignore[call-overload]


async def test_a_report_more_or_less_is_the_same_run(state_dir: Path, theirs: Theirs, tmp_path: Path) -> None:
    def change(found: dict[str, bytes]) -> None:
        found["report.html"] = b"<p>hello"

    other = remade(theirs.bundle, tmp_path / "other.zip", change)
    async with Supervisor.open(state_dir) as sup:
        await sup.import_(other)
        assert (await sup.import_(theirs.bundle)).admission == "already"


async def test_a_caller_that_is_gone_leaves_a_whole_import(state_dir: Path, theirs: Theirs) -> None:
    async with Supervisor.open(state_dir) as sup:
        asking = asyncio.create_task(sup.import_(theirs.bundle))
        await asyncio.sleep(0)  # it has begun
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking

        async def is_there() -> bool:
            return [view.id for view in (await sup.list()).runs] == [theirs.view.id]

        await eventually_async(is_there)
        assert (await sup.import_(theirs.bundle)).admission == "already"
    assert (await verify(state_dir)).findings == []


async def test_an_owner_that_closes_meanwhile(state_dir: Path, theirs: Theirs) -> None:
    """All of it, or a typed refusal and nothing."""
    async with Supervisor.open(state_dir) as sup:
        asking = asyncio.create_task(sup.import_(theirs.bundle))
        await asyncio.sleep(0)
    try:
        there = [(await asking).run_id]
    except SupervisorError as error:
        assert error.code is ErrorCode.SUPERVISOR_CLOSED  # noqa: PT017
        there = []
    async with Observer.open(state_dir) as seen:
        assert [view.id for view in (await seen.list()).runs] == there
    assert len({name.partition("/")[0] for name in imported(state_dir)}) == len(there)


async def test_many_at_once(state_dir: Path, theirs: Theirs) -> None:
    async with Supervisor.open(state_dir) as sup:
        told = await asyncio.gather(*(sup.import_(theirs.bundle) for _ in range(4)))
    assert sorted(one.admission for one in told) == ["already", "already", "already", "imported"]
