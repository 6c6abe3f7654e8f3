"""What happens to the files: damage to logs, of open runs and settled ones, under a live worker or none."""

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from durable_supervisor import (
    Command,
    ErrorCode,
    Limits,
    Observer,
    RunState,
    RunView,
    Supervisor,
    SupervisorError,
)
from durable_supervisor.model.events import Event, Kind
from durable_supervisor.runlog.format import RECORD_MAGIC, SYNC
from tests.contract.hosts import check_error, flip, kill_run, log_of
from tests.contract.runs import Runs, check_gapless, open_runs
from tests.support import PATIENCE

# Damage to the log of an open run, whose worker is gone.


def cut(path: Path) -> None:
    """7 bytes of its last event, and with them the mark behind it, where it is synced."""
    data = path.read_bytes()
    last = data.rindex(RECORD_MAGIC)
    end = last if data[last + len(RECORD_MAGIC)] == SYNC else len(data)
    os.truncate(path, end - 7)


def zeros(path: Path) -> None:
    with open(path, "ab") as file:
        file.write(bytes(300))


def empty(path: Path) -> None:
    os.truncate(path, 0)


def missing(path: Path) -> None:
    path.unlink()


def symlink(path: Path) -> None:
    os.rename(path, path.parent.parent.parent / f"{path.name}.moved")
    path.symlink_to(path.parent.parent.parent / f"{path.name}.moved")


def fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path, 0o600)


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def other_log(path: Path) -> None:
    """Another run's log under this run's name."""
    other = next(
        one
        for one in sorted(path.parent.glob("*.log"))
        if one != path and stat.S_ISREG(one.lstat().st_mode) and one.stat().st_size > 1000
    )
    path.unlink()
    shutil.copy(other, path)


def middle_bit(path: Path) -> None:
    flip(path, path.stat().st_size // 2)


def header_bit(path: Path) -> None:
    flip(path, 40)


def garbage(path: Path) -> None:
    path.write_bytes(os.urandom(5000))


def untouched(path: Path) -> None:
    assert path.is_file()


DAMAGES: dict[Callable[[Path], None], tuple[set[str], set[str | None]]] = {
    # damage: (states of an open run, kinds of its log's health once it is settled)
    untouched: ({"unknown"}, {None}),
    cut: ({"unknown"}, {"cut_short"}),
    zeros: ({"quarantined"}, {"damaged"}),
    empty: ({"quarantined"}, {"empty"}),
    missing: ({"quarantined"}, {"missing"}),
    symlink: ({"quarantined"}, {"not_regular"}),
    fifo: ({"quarantined"}, {"not_regular"}),
    folder: ({"quarantined"}, {"not_regular"}),
    other_log: ({"quarantined"}, {"foreign"}),
    middle_bit: ({"quarantined"}, {"damaged"}),
    header_bit: ({"quarantined"}, {"damaged", "foreign", "unreadable"}),
    garbage: ({"quarantined"}, {"unreadable"}),
}
GOOD = 3
GIVEN = Limits(grace=3)  # what `Runs` starts with


async def read_all(seen: Observer, run_id: str) -> list[Event]:
    """Paged by 3: whatever the damage, paging ends and nothing comes twice."""
    found: list[Event] = []
    after = 0
    while True:
        page = await seen.events(run_id, after=after, limit=3)
        found += page.events
        if page.next_after == after:
            return found
        after = page.next_after


async def test_damaged_logs_of_open_runs_harm_only_themselves(state_dir: Path) -> None:
    started: dict[str, RunView] = {}
    before: dict[str, list[Event]] = {}
    async with open_runs(state_dir) as runs:
        for damage in [*DAMAGES, *range(GOOD)]:
            name = str(damage) if isinstance(damage, int) else damage.__name__
            run = await runs.sh(
                "for i in 1 2 3 4 5; do echo line $i; sleep 0.01; done; read line", stdin="open"
            )
            await runs.printed(run, b"line 5\n")
            started[name] = await runs.sup.inspect(run.id)
            before[name] = await runs.events(run)
    for damage in DAMAGES:
        await kill_run(started[damage.__name__])
        damage(log_of(state_dir, started[damage.__name__].id))
    async with open_runs(state_dir) as runs:  # a FIFO is not waited for
        for damage, (states, _) in DAMAGES.items():
            name = damage.__name__
            seen = await runs.sup.inspect(started[name].id)
            assert seen.state.value in states, (name, seen.state, seen.reason)
            assert seen.outcome is None
            assert seen.reason
            assert seen.evidence is not None
            assert not seen.retryable
            check_kept(name, before[name], await read_all(runs.sup, seen.id))
            with pytest.raises(SupervisorError) as caught:
                await runs.sup.wait(seen.id, timeout=PATIENCE)
            check_error(caught.value, ErrorCode.OUTCOME_UNKNOWN)
            same = await runs.sup.start(
                Command(argv=list(seen.argv), stdin="open"),
                request_id=seen.request_id,
                limits=GIVEN,
            )
            assert (same.id, same.admission) == (seen.id, "existing"), "never executed again"
        for number in range(GOOD):
            good = started[str(number)]
            assert (await runs.sup.inspect(good.id)).state is RunState.RUNNING
            await runs.sup.write_stdin(good.id, b"\n")
            final = await runs.sup.wait(good.id, timeout=PATIENCE)
            assert final.state is RunState.FINISHED
            assert final.log_health is None
        fresh = await runs.sh("exit 0")
        assert (await runs.wait(fresh)).state is RunState.FINISHED, "the service is fine"
    moved = state_dir / f"{log_of(state_dir, started['symlink'].id).name}.moved"
    assert b"run.unknown" not in moved.read_bytes()
    assert b"run.quarantined" not in moved.read_bytes(), "a link is never written through"


def check_kept(name: str, before: list[Event], after: list[Event]) -> None:
    if name in ("empty", "missing", "symlink", "fifo", "folder", "other_log", "garbage"):
        assert not [one for one in after if one.kind == Kind.OUTPUT], f"{name}: not this run's output"
        return
    check_gapless(after)
    kept = {one.seq: one for one in after}
    lost = [one for one in before if kept.get(one.seq) != one]
    assert len(lost) <= (0 if name in ("untouched", "zeros", "header_bit") else 1), (name, lost)
    repairs = [one for one in after if one.kind == Kind.RUN_LOG_REPAIRED]
    words = [one.kind for one in after if one.kind in (Kind.RUN_UNKNOWN, Kind.RUN_QUARANTINED)]
    assert len(words) == 1, (name, [one.kind for one in after])
    tail_damaged = name in ("cut", "zeros")
    assert len(repairs) == (1 if tail_damaged else 0) or name == "header_bit", name


async def test_a_second_look_at_damage_adds_nothing(state_dir: Path) -> None:
    """Judged at every open, written once."""
    async with open_runs(state_dir) as runs:
        run = await runs.sh("echo x; read line", stdin="open")
        await runs.printed(run, b"x\n")
        seen = await runs.sup.inspect(run.id)
    await kill_run(seen)
    zeros(log_of(state_dir, run.id))
    sizes, feeds = [], []
    for _ in range(3):
        async with open_runs(state_dir) as runs:
            await runs.sup.reconcile()
            sizes.append(
                sum(path.stat().st_size for path in (state_dir / "runs").rglob("*") if path.is_file())
            )
            feeds.append(len(await runs.sup.feed(limit=1000)))
    assert len(set(sizes)) == 1
    assert len(set(feeds)) == 1


async def test_damaged_logs_of_settled_runs_change_no_outcome(state_dir: Path) -> None:
    ended: dict[str, RunView] = {}
    before: dict[str, list[Event]] = {}
    async with open_runs(state_dir) as runs:
        for damage in [*DAMAGES, *range(GOOD)]:
            name = str(damage) if isinstance(damage, int) else damage.__name__
            run = await runs.sh("for i in 1 2 3 4 5; do echo line $i; sleep 0.01; done; exit 7")
            await runs.wait(run)
            before[name] = await runs.events(run)
            ended[name] = await runs.sup.inspect(run.id)
        await runs.sup.reconcile()
    # Each is in the journal; else the log would be the only evidence of its end.
    with sqlite3.connect(state_dir / "journal.db") as conn:
        assert conn.execute("SELECT DISTINCT state FROM runs").fetchall() == [("finished",)]
    conn.close()
    for damage in DAMAGES:
        damage(log_of(state_dir, ended[damage.__name__].id))
    async with open_runs(state_dir) as runs:
        await runs.sup.reconcile()
        for name, was in ended.items():
            seen = await runs.sup.inspect(was.id)
            assert (seen.state, seen.outcome, seen.receipt) == (was.state, was.outcome, was.receipt), name
            assert (await runs.sup.wait(was.id, timeout=PATIENCE)).outcome == was.outcome
            events = await read_all(runs.sup, was.id)
            assert [one.seq for one in events] == sorted({one.seq for one in events})
            again = {one.seq: one for one in events if one.kind != Kind.OUTPUT_DROPPED}
            assert all(again[one.seq] == one for one in before[name] if one.seq in again), name
        for damage, (_, healths) in DAMAGES.items():
            seen = await runs.sup.inspect(ended[damage.__name__].id)
            health = None if seen.log_health is None else seen.log_health["status"]
            assert health in healths, (damage.__name__, seen.log_health)
        for number in range(GOOD):
            assert (await runs.sup.inspect(ended[str(number)].id)).log_health is None


async def test_a_settled_log_that_lost_its_later_segments_says_so(state_dir: Path) -> None:
    """What is left of it reads well, so nothing but the receipt in the journal tells."""
    async with open_runs(state_dir) as runs:
        program = Command(argv=["sh", "-c", "yes | head -c 600000"])
        run = await runs.sup.start(program, limits=Limits(max_stdout_bytes=400_000))
        whole = await runs.wait(run)
        assert (await runs.sup.inspect(run.id)).log_health is None
        await runs.sup.reconcile()
    shutil.rmtree(log_of(state_dir, run.id).with_suffix(".seg"))
    async with Observer.open(state_dir) as eyes:
        seen = await eyes.inspect(run.id)
        assert (seen.outcome, seen.receipt) == (whole.outcome, whole.receipt)
        assert seen.log_health == {"status": "cut_short"}


# Damage under a live worker.


async def test_a_log_cut_under_its_living_writer_still_gets_its_receipt(runs: Runs) -> None:
    run = await runs.sh("echo one; read line; echo two; exit 5", stdin="open")
    await runs.printed(run, b"one\n")
    cut(log_of(runs.state_dir, run.id))
    await runs.sup.write_stdin(run.id, b"\n")
    final = await runs.wait(run)
    assert final.state is RunState.FINISHED
    assert final.outcome is not None
    assert final.outcome.code == 5
    events = await runs.events(run)
    check_gapless(events)
    assert b"two\n" in [one.data for one in events]


@pytest.mark.parametrize("how", [missing, symlink, fifo])
async def test_a_log_taken_away_under_its_living_writer(
    runs: Runs, marker: object, how: Callable[[Path], None]
) -> None:
    """A tmp cleaner: quarantined, since its end can no longer be told; never executed a second time."""
    run = await runs.sh(f"echo one; sleep {marker}", stdin="open")
    await runs.printed(run, b"one\n")
    seen = await runs.sup.inspect(run.id)
    how(log_of(runs.state_dir, run.id))
    await runs.sup.reconcile()
    now = await runs.sup.inspect(run.id)
    assert now.state is RunState.QUARANTINED
    same = await runs.sup.start(
        Command(argv=list(seen.argv), stdin="open"), request_id=run.request_id, limits=GIVEN
    )
    assert (same.id, same.attempt) == (run.id, 1)
    await kill_run(seen)


async def test_one_bit_in_a_records_length_does_not_hide_the_receipt_behind_it(state_dir: Path) -> None:
    """No supervisor has folded the receipt: the log is all there is."""
    async with open_runs(state_dir) as runs:
        run = await runs.sh("echo one; read line; echo two; exit 6", stdin="open")
        await runs.printed(run, b"one\n")
    path = log_of(state_dir, run.id)
    async with Observer.open(state_dir) as seen:
        await seen.write_stdin(run.id, b"\n")
        final = await seen.wait(run.id, timeout=PATIENCE)
        assert final.outcome is not None
        assert final.outcome.code == 6
    whole = path.read_bytes()
    spot = whole.index(b"one\n")
    tried = 0
    for offset in range(spot - 120, spot, 3):  # the header of that record: its length is among these bytes
        path.write_bytes(whole)
        flip(path, offset)
        async with Observer.open(state_dir) as seen:
            final = await seen.inspect(run.id)
            assert final.outcome is not None, offset
            assert final.outcome.code == 6, "a valid receipt counts"
            assert final.log_health is not None, "the damage is told"
            assert final.log_health["status"] == "damaged"
            events = await read_all(seen, run.id)
            check_gapless(events)
            assert b"two\n" in [one.data for one in events]
        tried += 1
    assert tried > 10
    async with Supervisor.open(state_dir) as sup:
        final = await sup.inspect(run.id)
        assert final.outcome is not None
        assert (final.state, final.outcome.code) == (RunState.FINISHED, 6)
        assert final.log_health is not None
