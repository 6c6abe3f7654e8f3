"""A free worker has its next run alone, whatever happens to it before and while it is given that."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
from pathlib import Path

import pytest

from durable_supervisor import Command, RunState, Supervisor
from durable_supervisor.model.view import RunView
from durable_supervisor.process.channel import encode_frame
from durable_supervisor.process.identity import read_stat
from durable_supervisor.process.pulse import Pulse
from durable_supervisor.supervisor.workers import spare
from durable_supervisor.supervisor.workers.channel import Assignment
from durable_supervisor.supervisor.workers.spare import KeptWorker
from tests.process.reuse import a_free_worker, busy, ended
from tests.process.test_zygote import alive, worker_pid, zygotes
from tests.support import PATIENCE, eventually_async

pytestmark = pytest.mark.usefixtures("no_zygotes")


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Free workers are let go of only where a test is about that: a busy machine may take its time."""
    monkeypatch.setattr(spare, "_IDLE_SECONDS", 600)


async def test_a_free_worker_minds_no_signal_that_a_worker_may_get(state_dir: Path) -> None:
    async with busy(state_dir) as sup:
        worker = await a_free_worker(sup)
        for signo in (signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP, signal.SIGINT):
            os.kill(worker, signo)
        run = await ended(sup, "sh", "-c", "exit 6")
        assert worker_pid(run) == worker
        assert run.outcome is not None
        assert (run.outcome.kind, run.outcome.code) == ("exited", 6)


async def test_a_free_worker_that_was_killed_is_nobodys_loss(state_dir: Path) -> None:
    async with busy(state_dir) as sup:
        for number in range(3):
            worker = await a_free_worker(sup)
            os.kill(worker, signal.SIGKILL)
            await eventually_async(lambda pid=worker: not alive(pid))  # type: ignore[misc]
            run = await ended(sup, "sh", "-c", f"exit {number}")
            assert worker_pid(run) != worker
            assert run.outcome is not None
            assert run.outcome.code == number


async def test_a_free_worker_that_stands_still_gets_no_run(state_dir: Path) -> None:
    async with busy(state_dir) as sup:
        worker = await a_free_worker(sup)
        os.kill(worker, signal.SIGSTOP)
        await eventually_async(lambda: (stat := read_stat(worker)) is not None and stat.state == "T")
        run = await ended(sup, "sh", "-c", "exit 7")
        assert worker_pid(run) != worker
        assert run.outcome is not None
        assert run.outcome.code == 7
        os.kill(worker, signal.SIGCONT)
        await eventually_async(lambda: not alive(worker))


@pytest.mark.parametrize("then", [signal.SIGCONT, signal.SIGKILL])
async def test_stopped_with_its_next_run_in_its_socket_it_alone_has_that_run(
    state_dir: Path, tmp_path: Path, then: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    book = tmp_path / "book"
    command = Command(argv=["sh", "-c", 'echo ran >>"$1"; exit 7', "sh", str(book)])
    async with busy(state_dir) as sup:
        worker = await a_free_worker(sup)
        monkeypatch.setattr(Pulse, "stands_still", _stop_just_after_the_look)
        starting = asyncio.ensure_future(sup.start(command, request_id="one"))
        await eventually_async(lambda: (stat := read_stat(worker)) is not None and stat.state == "T")
        monkeypatch.undo()
        again = asyncio.ensure_future(sup.start(command, request_id="one"))
        assert (await sup.list()).runs[0].state is RunState.STARTING
        os.kill(worker, then)
        run = await starting
        assert (await again).id == run.id
        seen = await sup.wait(run.id, timeout=30)
        if seen.state is RunState.NOT_STARTED:  # `again` came before that was known
            await sup.start(command, request_id="one")
            seen = await sup.wait(run.id, timeout=30)
        assert (seen.attempt, worker_pid(seen) == worker) == (
            (1, True) if then is signal.SIGCONT else (2, False)
        )
        assert seen.outcome is not None
        assert seen.outcome.code == 7
        assert book.read_text() == "ran\n"


def _stop_just_after_the_look(pulse: Pulse) -> bool:
    os.kill(pulse.pid, signal.SIGSTOP)
    return False


@pytest.mark.parametrize("late", [1, 3])
async def test_what_was_said_to_the_last_run_too_late_is_for_nobody(
    state_dir: Path, late: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the channel it stands before the next run, which is not the one that it was meant for."""
    stops = [{"op": "stop", "id": f"late-{number}", "grace": 0} for number in range(late)]
    give = KeptWorker.give

    def give_late(worker: KeptWorker, frame: bytes, log: int) -> Assignment | None:
        assert worker._channel is not None
        worker._channel.end.send(b"".join(encode_frame(dict(stop), b"blob") for stop in stops))
        return give(worker, frame, log)

    async with busy(state_dir) as sup:
        worker = await a_free_worker(sup)
        with monkeypatch.context() as patched:
            patched.setattr(KeptWorker, "give", give_late)
            run = await ended(sup, "sh", "-c", "sleep 0.1; exit 6")
        assert worker_pid(run) == worker
        assert run.outcome is not None
        assert (run.outcome.kind, run.outcome.code) == ("exited", 6)
        kinds = [event.kind for event in (await sup.events(run.id)).events]
        assert not [kind for kind in kinds if kind.startswith("control.")]


async def test_a_spec_that_does_not_fit_the_channel_reaches_a_free_worker(state_dir: Path) -> None:
    large = {f"LARGE_{number}": "x" * 100_000 for number in range(6)}
    async with busy(state_dir) as sup:

        async def by_a_free_one() -> RunView | None:
            worker = await a_free_worker(sup)
            run = await ended(sup, "sh", "-c", "exit ${#LARGE_5}", env={**large, "LARGE_5": "12345"})
            return run if worker_pid(run) == worker else None

        run = await eventually_async(by_a_free_one, timeout=60)
        assert run.outcome is not None
        assert run.outcome.code == 5


async def test_it_needs_no_zygote_any_more(state_dir: Path) -> None:
    async with busy(state_dir) as sup:
        worker = await a_free_worker(sup)
        (zygote,) = zygotes()
        os.kill(zygote, signal.SIGKILL)
        await eventually_async(lambda: not alive(zygote))
        run = await ended(sup, "true")
        assert worker_pid(run) == worker


async def test_a_free_worker_that_cannot_take_a_log_does_not_keep_its_run_waiting(state_dir: Path) -> None:
    """The log is lost on the way then, and with it the lock: nobody has the run."""
    async with busy(state_dir) as sup:
        worker = await a_free_worker(sup)
        resource.prlimit(worker, resource.RLIMIT_NOFILE, (4, 4))
        lost = await sup.start(Command(argv=["true"]), request_id="one")
        assert (lost.state, lost.reason) == (RunState.NOT_STARTED, "worker_lost")
        await eventually_async(lambda: not alive(worker))
        await sup.start(Command(argv=["true"]), request_id="one")
        seen = await sup.wait(lost.id, timeout=PATIENCE)
        assert (seen.state, seen.attempt) == (RunState.FINISHED, 2)


async def test_the_lock_is_free_whatever_went_wrong_at_a_free_worker(
    state_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_memory(worker: KeptWorker, frame: bytes, log: int) -> None:
        raise MemoryError

    async with busy(state_dir) as sup:
        await a_free_worker(sup)
        with monkeypatch.context() as patched:
            patched.setattr(KeptWorker, "give", no_memory)
            with pytest.raises(MemoryError):
                await sup.start(Command(argv=["true"]), request_id="one")
        run = await sup.start(Command(argv=["true"]), request_id="one")
        seen = await sup.wait(run.id, timeout=PATIENCE)
        assert (seen.state, seen.attempt) == (RunState.FINISHED, 2)


async def test_killed_at_its_second_run_it_takes_only_that_one_along(state_dir: Path) -> None:
    async with busy(state_dir) as sup:
        first = await ended(sup, "sh", "-c", "exit 3")
        worker = await a_free_worker(sup)
        second = await sup.start(Command(argv=["sleep", "3131"]))
        assert worker_pid(await sup.inspect(second.id)) == worker
        os.kill(worker, signal.SIGKILL)
        lost = await eventually_async(lambda: _settled(sup, second.id))
        assert lost.state is RunState.QUARANTINED
        again = await sup.inspect(first.id)
        assert again.state is RunState.FINISHED
        assert again.outcome is not None
        assert again.outcome.code == 3
        assert again.live is None
        await sup.resolve(second.id, "kill", note="of a test")


async def _settled(sup: Supervisor, run: str) -> RunView | None:
    seen = await sup.inspect(run)
    return None if seen.state is RunState.RUNNING else seen
