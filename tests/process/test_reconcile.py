"""Verdicts on runs whose rows, logs, locks and processes are real."""

from __future__ import annotations

import os
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from durable_supervisor.journal import runs
from durable_supervisor.journal.rows import RunRow
from durable_supervisor.model.events import Kind
from durable_supervisor.model.identity import ProcessIdentity
from durable_supervisor.model.outcome import natural
from durable_supervisor.model.states import RunState, Trigger
from durable_supervisor.process.clock import boot_id
from durable_supervisor.process.locks import probe_lock
from durable_supervisor.reconcile.act import Judged, fold, must_sync
from durable_supervisor.reconcile.decide import decide
from durable_supervisor.reconcile.facts import VerdictKind
from durable_supervisor.reconcile.observe import observe
from durable_supervisor.reconcile.view import view
from durable_supervisor.runlog.create import read_header
from durable_supervisor.runlog.repair import open_for_append
from durable_supervisor.runlog.writer import LogWriter
from tests.process.reconcile_bench import (
    GONE,
    OTHER_BOOT,
    RECEIPT,
    Bench,
    dispatched,
    identity_of,
    open_bench,
    released,
)
from tests.support import running


@pytest_asyncio.fixture
async def bench(state_dir: Path) -> AsyncIterator[Bench]:
    async with open_bench(state_dir) as opened:
        yield opened


def gone() -> ProcessIdentity:
    """The identity of a process that has just ended."""
    process = subprocess.Popen(["sleep", "3131"])
    identity = identity_of(process)
    process.kill()
    process.wait()
    return identity


def in_place_of(process: subprocess.Popen[bytes]) -> ProcessIdentity:
    """An identity with the pid of a living process, and other start ticks."""
    real = identity_of(process)
    return ProcessIdentity(
        real.pid, real.start_ticks - 1, real.boot_id, real.pid_ns, real.time_ns, real.create_time
    )


def judged(bench: Bench, row: RunRow) -> Judged:
    seen = observe(row, bench.place)
    return Judged(row, seen, decide(seen))


def verdict_of(row: RunRow) -> tuple[str, str | None]:
    return row.state.value, row.reason


async def test_a_receipt_settles_the_run(bench: Bench) -> None:
    row = await bench.run([*released(GONE, GONE), (Kind.RUN_FINISHED, RECEIPT)], running=True)
    row = await bench.reconciler.judge(row.run_id)
    assert row.state is RunState.FINISHED
    assert row.outcome == RECEIPT["outcome"]
    assert row.receipt == RECEIPT


async def test_an_end_is_committed_with_fsync_unless_its_log_says_that_it_is_on_the_disk(
    bench: Bench,
) -> None:
    row = await bench.run([*released(GONE, GONE), (Kind.RUN_FINISHED, RECEIPT)], running=True)
    assert must_sync(judged(bench, row))
    fd = os.open(bench.log_path(row), os.O_RDWR)
    writer = open_for_append(bench.paths(row), 1, fd, boot_id=boot_id(), clock=bench.clock)
    assert writer.finish(Kind.RUN_WARNING, {"reason": "sync_failed"})  # it syncs, and says so
    writer.close()
    assert judged(bench, row).verdict.kind is VerdictKind.FINISHED
    assert not must_sync(judged(bench, row))


async def test_an_end_that_its_worker_is_still_at_is_not_told(bench: Bench) -> None:
    row = await bench.run([], running=True)
    me = identity_of(bench.sleeper(lock=bench.log_path(row)))
    bench.write_log(row, [*released(me, me), (Kind.RUN_FINISHED, RECEIPT)])
    seen = view(row, bench.place)
    assert (seen.state, seen.outcome, seen.receipt) == (RunState.RUNNING, None, None)
    assert (await bench.reconciler.judge(row.run_id)).state is RunState.RUNNING


async def test_a_held_lock_reattaches_and_folds_what_the_log_says(bench: Bench) -> None:
    row = await bench.run([])
    worker = bench.sleeper(lock=bench.log_path(row))
    assert (await bench.reconciler.judge(row.run_id)).state is RunState.STARTING
    me = identity_of(worker)
    bench.write_log(row, released(me, me))
    row = await bench.reconciler.judge(row.run_id)
    assert row.state is RunState.RUNNING
    assert row.worker == me.to_dict()
    assert row.evidence is None
    bench.write_log(row, [*released(me, me), (Kind.RUN_STOPPING, {"reason": "stop", "grace": 1})])
    assert (await bench.reconciler.judge(row.run_id)).state is RunState.STOPPING
    assert running(worker.pid)


async def test_a_killed_worker_before_the_release_is_not_started(bench: Bench) -> None:
    row = await bench.run([dispatched(gone())])
    row = await bench.reconciler.judge(row.run_id)
    assert verdict_of(row) == ("not_started", "worker_lost")
    assert row.may_retry
    assert bench.kinds(row) == [Kind.RUN_DISPATCHED, Kind.RUN_NOT_STARTED]


async def test_a_journal_that_saw_the_release_outweighs_a_log_that_lost_it(bench: Bench) -> None:
    """Only a released program is stopped, so this one may have run whatever its log still says."""
    row = await bench.run([dispatched(gone())], running=True)
    await bench.journal.write(
        lambda conn: runs.transition(conn, row.run_id, Trigger.STOP, RunState.RUNNING, bench.clock.wall_ns())
    )
    row = await bench.reconciler.judge(row.run_id)
    assert verdict_of(row) == ("quarantined", "program_not_logged")
    assert not row.may_retry


async def test_a_stopped_run_that_never_started_is_not_retryable(bench: Bench) -> None:
    row = await bench.run([dispatched(gone())])
    await bench.journal.write(lambda conn: runs.mark_stop_requested(conn, row.run_id, 1))
    row = await bench.reconciler.judge(row.run_id)
    assert row.state is RunState.NOT_STARTED
    assert not row.retryable


async def test_a_killed_worker_after_the_release_is_unknown(bench: Bench) -> None:
    row = await bench.run(released(gone(), gone()), running=True)
    row = await bench.reconciler.judge(row.run_id)
    assert verdict_of(row) == ("unknown", "worker_lost")
    assert row.outcome is None
    assert not row.retryable
    assert row.evidence is not None
    assert row.evidence["program"]["liveness"] == "gone"
    assert bench.kinds(row)[-1] == Kind.RUN_UNKNOWN


async def test_a_logged_exit_is_finished_though_the_worker_died(bench: Bench) -> None:
    exited: tuple[str, dict[str, object]] = (Kind.PROGRAM_EXITED, {"code": 3, "signal": None})
    events = [*released(gone(), gone()), exited]
    row = await bench.run(events, running=True)
    row = await bench.reconciler.judge(row.run_id)
    assert verdict_of(row) == ("finished", "exit_logged")
    assert row.outcome == {"kind": "exited", "code": 3, "signal": None}
    assert row.receipt is not None
    assert row.receipt["incomplete"] is True
    assert bench.kinds(row)[-1] == Kind.RUN_FINISHED


async def test_an_orphaned_program_is_quarantined_until_it_ends(bench: Bench) -> None:
    program = bench.sleeper()
    row = await bench.run(released(gone(), identity_of(program)), running=True)
    row = await bench.reconciler.judge(row.run_id)
    assert verdict_of(row) == ("quarantined", "program_alive")
    before, words = row.updated_ns, bench.kinds(row)
    assert words[-1] == Kind.RUN_QUARANTINED
    row = await bench.reconciler.judge(row.run_id)
    assert (row.updated_ns, bench.kinds(row)) == (before, words)  # nothing new: nothing written
    program.kill()
    program.wait()
    row = await bench.reconciler.judge(row.run_id)
    assert verdict_of(row) == ("unknown", "worker_lost")
    assert bench.kinds(row) == [*words, Kind.RUN_UNKNOWN]


async def test_a_reused_pid_is_told_and_left_alone(bench: Bench) -> None:
    stranger = bench.sleeper()
    row = await bench.run(released(gone(), in_place_of(stranger)), running=True)
    row = await bench.reconciler.judge(row.run_id)
    assert verdict_of(row) == ("unknown", "identity_mismatch")
    assert row.evidence is not None
    seen = row.evidence["program"]["mismatch"]
    assert seen == {"pid": stranger.pid, "start_ticks": identity_of(stranger).start_ticks}
    assert running(stranger.pid)


async def test_a_leaked_lock_is_quarantined_until_it_is_free(bench: Bench) -> None:
    row = await bench.run(released(gone(), gone()), running=True)
    holder = bench.sleeper(lock=bench.log_path(row))
    row = await bench.reconciler.judge(row.run_id)
    assert verdict_of(row) == ("quarantined", "lock_leaked")
    assert Kind.RUN_QUARANTINED not in bench.kinds(row)  # the log is somebody else's to write
    holder.kill()
    holder.wait()
    assert verdict_of(await bench.reconciler.judge(row.run_id)) == ("unknown", "worker_lost")


async def test_a_lock_shared_for_a_moment_is_no_leak(bench: Bench) -> None:
    row = await bench.run([dispatched(gone())])
    bench.sleeper(lock=bench.log_path(row), seconds=0.05)
    row = await bench.reconciler.judge(row.run_id)
    assert verdict_of(row) == ("not_started", "worker_lost")


@pytest.mark.parametrize("what", ["missing", "symlink", "fifo", "empty", "foreign"])
async def test_a_log_that_cannot_speak_is_quarantined_and_never_made(bench: Bench, what: str) -> None:
    row = await bench.run([dispatched(gone())])
    path = bench.log_path(row)
    other = path.with_name("other")
    path.rename(other)
    if what == "symlink":
        path.symlink_to(other)
    elif what == "fifo":
        os.mkfifo(path)
    elif what == "empty":
        path.touch()
    elif what == "foreign":
        bench.write_log(row, [], directory_id="dir-other")
    row = await bench.reconciler.judge(row.run_id)
    reason = {"symlink": "log_not_regular", "fifo": "log_not_regular"}.get(what, f"log_{what}")
    assert verdict_of(row) == ("quarantined", reason)
    assert not row.retryable
    assert path.exists() == (what != "missing")


async def test_a_log_that_comes_back_settles_its_run(bench: Bench) -> None:
    row = await bench.run([*released(gone(), gone()), (Kind.RUN_FINISHED, RECEIPT)], running=True)
    path = bench.log_path(row)
    path.rename(path.with_name("aside"))
    assert (await bench.reconciler.judge(row.run_id)).state is RunState.QUARANTINED
    path.with_name("aside").rename(path)
    row = await bench.reconciler.judge(row.run_id)
    assert row.state is RunState.FINISHED


async def test_damage_harms_only_its_own_run(bench: Bench) -> None:
    good = [await bench.run(released(gone(), GONE), running=True) for _ in range(3)]
    bad = await bench.run(released(gone(), gone()), running=True)
    data = bytearray(bench.log_path(bad).read_bytes())
    data[-120] ^= 1
    bench.log_path(bad).write_bytes(data)
    report = await bench.reconciler.pass_once()
    assert report.judged == 4
    assert verdict_of(await bench.row(bad.run_id)) == ("quarantined", "log_corrupt")
    health = (await bench.row(bad.run_id)).log_health
    assert health is not None
    assert health["status"] == "damaged"
    assert {(await bench.row(row.run_id)).state for row in good} == {RunState.UNKNOWN}
    again = await bench.reconciler.judge(bad.run_id)
    assert verdict_of(again) == ("quarantined", "log_corrupt")


async def test_a_torn_tail_is_no_proof_that_nothing_ran(bench: Bench) -> None:
    row = await bench.run(released(gone(), gone()))
    path = bench.log_path(row)
    os.truncate(path, path.stat().st_size - 7)  # the release is what is torn off
    row = await bench.reconciler.judge(row.run_id)
    assert verdict_of(row) == ("quarantined", "release_unproven")
    assert verdict_of(await bench.reconciler.judge(row.run_id)) == ("quarantined", "release_unproven")


async def test_damage_in_a_settled_log_is_log_health(bench: Bench) -> None:
    row = await bench.run([*released(GONE, GONE), (Kind.RUN_FINISHED, RECEIPT)], running=True)
    settled = await bench.reconciler.judge(row.run_id)
    data = bytearray(bench.log_path(row).read_bytes())
    data[len(data) // 2] ^= 1
    bench.log_path(row).write_bytes(data)
    health = view(settled, bench.place, check_log=True).log_health
    assert health is not None
    assert health["status"] == "damaged"
    now = await bench.reconciler.judge(row.run_id)
    assert now.log_health == health
    assert now._replace(log_health=None, updated_ns=0) == settled._replace(log_health=None, updated_ns=0)


async def test_damage_in_an_early_segment_is_found(bench: Bench) -> None:
    row = await bench.run([dispatched(gone())])
    fd = os.open(bench.log_path(row), os.O_RDWR | os.O_CLOEXEC)
    header, _ = read_header(fd)
    assert header is not None
    writer = LogWriter(
        fd,
        bench.paths(row),
        header,
        segment_bytes=4096,
        stdout_cap=1 << 20,
        stderr_cap=1 << 20,
        truncate=True,
        clock=bench.clock,
    )
    for _ in range(8):
        writer.append_output("stdout", b"x" * 2000)
        writer.flush()
    writer.close()
    data = bytearray(bench.log_path(row).read_bytes())
    data[-1500] ^= 1
    bench.log_path(row).write_bytes(data)
    row = await bench.reconciler.judge(row.run_id)
    assert verdict_of(row) == ("quarantined", "log_corrupt")  # the release might have stood there
    assert verdict_of(await bench.reconciler.judge(row.run_id)) == ("quarantined", "log_corrupt")


async def test_a_run_that_finished_meanwhile_keeps_its_outcome(bench: Bench) -> None:
    row = await bench.run(released(gone(), gone()), running=True)
    seen = observe(row, bench.place)
    late = Judged(row, seen, decide(seen))
    assert late.verdict.state is RunState.UNKNOWN
    finished = await bench.move(row, Trigger.FINISH, outcome=natural(0, None), receipt={"late": False})
    assert await fold(bench.journal, [late], bench.clock) == [finished]
    assert await bench.row(row.run_id) == finished


async def test_a_write_that_the_journal_refuses_harms_only_its_own_run(bench: Bench) -> None:
    judged = []
    for _ in range(4):
        row = await bench.run(released(gone(), gone()), running=True)
        seen = observe(row, bench.place)
        judged.append(Judged(row, seen, decide(seen)))
    bad = judged[2].verdict._replace(evidence={"not": {"json"}})
    judged[2] = judged[2]._replace(verdict=bad)
    folded = await fold(bench.journal, judged, bench.clock)
    assert [row.run_id for row in folded] == [judged[n].row.run_id for n in (0, 1, 3)]
    assert {row.state for row in folded} == {RunState.UNKNOWN}
    assert await bench.row(judged[2].row.run_id) == judged[2].row


async def test_a_verdict_never_hits_a_later_attempt(bench: Bench) -> None:
    row = await bench.run([dispatched(gone())])
    seen = observe(row, bench.place)
    late = Judged(row, seen, decide(seen))
    await bench.move(row, Trigger.REFUSE, reason="worker_lost", retryable=True)
    intent = bench.intent()._replace(
        serial=row.serial,
        run_id=row.run_id,
        request_id=row.request_id,
        attempt=2,
        first_seq=3,
    )
    retried = (await bench.journal.write(lambda conn: runs.admit(conn, intent))).row
    assert (retried.state, retried.attempt) == (row.state, 2)
    await fold(bench.journal, [late], bench.clock)
    assert await bench.row(row.run_id) == retried


async def test_a_resolved_run_is_left_alone(bench: Bench) -> None:
    program = bench.sleeper()
    row = await bench.run(released(gone(), identity_of(program)), running=True)
    row = await bench.reconciler.judge(row.run_id)
    resolved = await bench.move(row, Trigger.RESOLVE, reason="resolved")
    program.kill()
    program.wait()
    assert await bench.reconciler.judge(row.run_id) == resolved
    assert (await bench.reconciler.pass_once()).judged == 0


async def test_a_reader_sees_the_verdict_without_writing(bench: Bench) -> None:
    row = await bench.run([*released(GONE, gone()), (Kind.RUN_FINISHED, RECEIPT)], running=True)
    before = bench.log_path(row).read_bytes()
    seen = view(row, bench.place)
    assert seen.state is RunState.FINISHED
    assert seen.outcome is not None
    assert seen.outcome.code == 7
    assert seen.to_dict()["outcome"] == RECEIPT["outcome"]
    assert seen.head == 4
    lost = view(await bench.run(released(gone(), gone()), running=True), bench.place)
    assert (lost.state, lost.reason, lost.outcome) == (RunState.UNKNOWN, "worker_lost", None)
    assert await bench.row(row.run_id) == row
    assert bench.log_path(row).read_bytes() == before
    assert probe_lock(str(bench.log_path(row))).value == "free"


async def test_another_boot_is_unknown_never_not_started(bench: Bench) -> None:
    row = await bench.run([dispatched(GONE)], boot_id=OTHER_BOOT)
    row = await bench.reconciler.judge(row.run_id)
    assert verdict_of(row) == ("unknown", "release_unproven")
    assert row.evidence is not None
    assert row.evidence["may_be_alive"] is False
