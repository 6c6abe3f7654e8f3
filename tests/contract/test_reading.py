"""Reading and controls without ownership: beside an owner, with none alive, with nothing there yet."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from durable_supervisor import Command, ErrorCode, Limits, Observer, OutcomeKind, RunState, Supervisor
from durable_supervisor.model.events import Kind
from tests.contract.hosts import HostScript, kill_run, refused, tree_of
from tests.contract.runs import Runs, check_gapless, open_runs
from tests.support import PATIENCE, eventually, eventually_async, running

OWNER = """
async with Supervisor.open(STATE) as sup:
    run = await sup.start(Command(argv=["sh", "-c", "read line; echo $line; exit 9"], stdin="open"))
    report(run=run.id)
    await stay()
"""


async def test_a_directory_that_does_not_exist_yet_has_no_runs(tmp_path: Path) -> None:
    """Looking makes nothing; what is made later is seen by the same observer."""
    path = tmp_path / "not" / "yet"
    async with Observer.open(path) as seen:
        assert (await seen.list()).runs == []
        assert list(await seen.feed()) == []
        async with refused(ErrorCode.UNKNOWN_RUN):
            await seen.inspect("0" * 16)
        assert list(tmp_path.iterdir()) == []
        async with Supervisor.open(path) as sup:
            run = await sup.start(Command(argv=["true"]))
            assert (await seen.wait(run.id, timeout=PATIENCE)).state is RunState.FINISHED
            assert [view.id for view in (await seen.list()).runs] == [run.id]
            assert (await seen.events(run.id)).end


async def test_beside_an_owner_and_after_its_death(tmp_path: Path, state_dir: Path) -> None:
    with HostScript(OWNER, state_dir, tmp_path) as owner:
        run_id = owner.facts()["run"]
        async with Observer.open(state_dir) as seen:
            assert (await seen.inspect(run_id)).state is RunState.RUNNING
            assert (await seen.inspect(run_id[:6])).id == run_id
            view = await seen.inspect(run_id)
            assert view.live is not None
            assert view.live["processes"]
            owner.kill()
            before = tree_of(state_dir)
            assert (await seen.inspect(run_id)).state is RunState.RUNNING
            assert [one.state for one in (await seen.list()).runs] == [RunState.RUNNING]
            receipt = await seen.write_stdin(run_id, b"from a stranger\n")
            assert receipt.result == "written"
            final = await seen.wait(run_id, timeout=PATIENCE)
            assert final.outcome is not None
            assert (final.state, final.outcome.code) == (RunState.FINISHED, 9)
            page = await seen.events(run_id)
            assert page.end
            check_gapless(page.events)
            assert b"from a stranger\n" in [event.data for event in page.events]
            now = tree_of(state_dir)
            changed = {name for name in now if now[name] != before.get(name)}
            assert all(name.startswith("runs/") for name in changed), "readers write nothing"


async def test_stop_and_signal_need_no_owner(state_dir: Path) -> None:
    async with open_runs(state_dir) as runs:
        stopped = await runs.sh("echo on; exec sleep 60")
        signalled = await runs.sh("echo on; exec sleep 60")
        for run in (stopped, signalled):
            await runs.printed(run, b"on\n")
    async with Observer.open(state_dir) as seen:
        receipt = await seen.stop(stopped.id)
        assert receipt.confirmed
        assert receipt.outcome is not None
        assert receipt.outcome.kind is OutcomeKind.CANCELLED
        await seen.signal(signalled.id, 10)
        final = await seen.wait(signalled.id, timeout=PATIENCE)
        assert final.outcome is not None
        assert final.outcome.signal == 10


async def test_the_truth_about_a_lost_run_with_nobody_to_judge_it(state_dir: Path) -> None:
    async with open_runs(state_dir) as runs:
        lost = await runs.sh("echo on; exec sleep 60")
        await runs.printed(lost, b"on\n")
        orphaned = await runs.sh("echo on; exec sleep 60")
        await runs.printed(orphaned, b"on\n")
        views = {run.id: await runs.sup.inspect(run.id) for run in (lost, orphaned)}
    await kill_run(views[lost.id])
    worker = views[orphaned.id].worker
    assert worker is not None
    pid = int(str(worker["pid"]))
    os.kill(pid, 9)
    eventually(lambda: not running(pid))
    async with Observer.open(state_dir) as seen:
        view = await seen.inspect(lost.id)
        assert (view.state, view.outcome, view.retryable) == (RunState.UNKNOWN, None, False)
        assert view.evidence
        async with refused(ErrorCode.OUTCOME_UNKNOWN) as caught:
            await seen.wait(lost.id, timeout=PATIENCE)
        assert caught().details["run_id"] == lost.id
        view = await seen.inspect(orphaned.id)
        assert (view.state, view.reason) == (RunState.QUARANTINED, "program_alive")
        async with refused(ErrorCode.NOT_RUNNING):
            await seen.stop(orphaned.id)
    async with Supervisor.open(state_dir) as sup:
        assert (await sup.inspect(lost.id)).state is RunState.UNKNOWN
        assert (await sup.inspect(orphaned.id)).state is RunState.QUARANTINED
        killed = await sup.resolve(orphaned.id, "kill")
        assert killed.state is RunState.UNKNOWN
        assert killed.resolution is not None


async def test_lists_page_by_key_newest_first(runs: Runs) -> None:
    ids = []
    for number in range(7):
        run = await runs.sup.start(
            Command(argv=["/no/such/program"] if number % 2 else ["true"]), labels={"odd": str(number % 2)}
        )
        ids.append(run.id)
        if not number % 2:
            await runs.wait(run)
    await runs.sup.reconcile()
    found: list[str] = []
    before = None
    while True:
        page = await runs.sup.list(limit=2, before=before)
        assert len(page.runs) <= 2
        found += [view.id for view in page.runs]
        if page.next_before is None:
            break
        before = page.next_before
    assert found == ids[::-1]
    odd = await runs.sup.list(label=("odd", "1"))
    assert [view.id for view in odd.runs] == ids[1::2][::-1]
    ended = await runs.sup.list(states={RunState.NOT_STARTED})
    assert {view.id for view in ended.runs} == set(ids[1::2])
    assert (await runs.sup.list(label=("odd", "2"))).runs == []


async def test_a_run_that_has_ended_is_listed_as_ended(runs: Runs) -> None:
    """At once, though the journal hears of it later; and a page is filled across those that do not fit."""
    made = [await runs.sup.start(Command(argv=["true"])) for _ in range(5)]
    live = await runs.sup.start(Command(argv=["sleep", "600"]))
    for run in made:
        await runs.sup.wait(run.id, timeout=PATIENCE)
    finished = await runs.sup.list(states={RunState.FINISHED}, limit=3)
    rest = await runs.sup.list(states={RunState.FINISHED}, limit=3, before=finished.next_before)
    assert [view.id for view in (*finished.runs, *rest.runs)] == [run.id for run in reversed(made)]
    assert rest.next_before is None
    open_ones = await runs.sup.list(states={RunState.STARTING, RunState.RUNNING})
    assert [view.id for view in open_ones.runs] == [live.id]


async def test_filters_do_not_renumber(runs: Runs) -> None:
    run = await runs.sh("for i in 1 2 3 4 5 6; do echo $i; echo e$i >&2; done")
    await runs.wait(run)
    everything = {event.seq: event for event in await runs.events(run)}
    for size in (1, 2, 7, 1000):
        quiet = await runs.events(run, size=size, output=False)
        assert all(everything[event.seq] == event for event in quiet)
        assert [event.seq for event in quiet] == [
            seq for seq, event in everything.items() if event.kind != Kind.OUTPUT
        ]
        exits = await runs.events(run, size=size, kinds={Kind.PROGRAM_EXITED})
        assert len(exits) == 1
        assert everything[exits[0].seq] == exits[0]
    page = await runs.sup.events(run.id, kinds=set(), limit=5)
    assert (page.events, page.next_after, page.end) == ([], len(everything), True), (
        "the cursor moves over them"
    )
    page = await runs.sup.events(run.id, kinds={"nonsense"})
    assert page.end


async def test_every_page_size_gives_the_same_events(runs: Runs) -> None:
    script = "for i in $(seq 300); do echo out $i; echo err $i >&2; done"
    run = await runs.sh(script)
    await runs.wait(run)
    whole = await runs.events(run, size=10_000)
    check_gapless(whole)
    for size in (1, 7, 64, 999):
        assert await runs.events(run, size=size) == whole
    for after in range(0, len(whole), 37):
        page = await runs.sup.events(run.id, after=after, limit=3)
        assert page.events == whole[after : after + 3]


async def test_a_cursor_beyond_the_head_is_told(runs: Runs) -> None:
    run = await runs.sh("read line", stdin="open")
    head = (await runs.sup.events(run.id)).next_after
    async with refused(ErrorCode.CURSOR_AHEAD) as caught:
        await runs.sup.events(run.id, after=head + 1000)
    assert caught().details["after"] == head + 1000
    known = caught().details["head"]
    assert isinstance(known, int)
    assert head <= known < head + 1000
    assert "generation" in caught().details
    async with refused(ErrorCode.CURSOR_AHEAD):
        await anext(runs.sup.follow(run.id, after=head + 1000))
    await runs.sup.write_stdin(run.id, b"", eof=True)
    await runs.wait(run)


async def test_inspect_looks_at_a_live_tree(runs: Runs) -> None:
    run = await runs.sh("sleep 60 & sleep 60 & wait")

    async def three() -> bool:
        view = await runs.sup.inspect(run.id)
        assert view.live is not None
        processes = view.live["processes"]
        assert isinstance(processes, list)
        assert {"pid", "cpu_seconds", "rss_bytes"} <= set(processes[0])
        return len(processes) == 3

    await eventually_async(three)
    await runs.sup.stop(run.id)
    assert (await runs.sup.inspect(run.id)).live is None


async def test_two_observers_of_one_directory_in_many_tasks(runs: Runs) -> None:
    run = await runs.sh("for i in $(seq 20); do echo $i; sleep 0.005; done")
    async with Observer.open(runs.state_dir) as one, Observer.open(runs.state_dir) as two:
        waits = [seen.wait(run.id, timeout=PATIENCE) for seen in (one, two) for _ in range(10)]
        views = await asyncio.gather(*waits)
        assert {view.state for view in views} == {RunState.FINISHED}
        pages = await asyncio.gather(
            *(seen.events(run.id, after=after, limit=3) for seen in (one, two) for after in range(6))
        )
    assert [page.events for page in pages[:6]] == [page.events for page in pages[6:]]


async def test_reading_finds_runs_of_other_limits_unchanged(runs: Runs) -> None:
    limits = Limits(timeout=30, idle_timeout=20, grace=1.5, max_stdout_bytes=1000, max_stderr_bytes=2000)
    run = await runs.sup.start(Command(argv=["true"]), limits=limits, completion="tree", labels={"a": "b"})
    final = await runs.wait(run)
    assert final.limits == limits.to_dict()
    assert (final.completion, final.labels) == ("tree", {"a": "b"})
