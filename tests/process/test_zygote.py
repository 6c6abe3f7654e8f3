"""Workers forked by the zygote: the same behaviour, whatever happens to the zygote."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import socket
from pathlib import Path

import pytest

from durable_supervisor import Command, RunState, Supervisor
from durable_supervisor.model.view import RunView
from durable_supervisor.process.identity import read_stat
from durable_supervisor.process.tree import children_of
from durable_supervisor.supervisor.workers.spawn import spawn_zygote
from tests.conftest import eventually, eventually_async
from tests.process.handover import LISTENER, check_goes_on
from tests.support import PATIENCE, is_log, is_next_log

pytestmark = pytest.mark.usefixtures("no_zygotes")

BELL = "anon_inode:[eventfd]"  # by which an idle worker asks for what it could share
IMAGE = "/memfd:worker-memory"  # what idle workers share, as /proc has it among the descriptors of each


def zygotes() -> list[int]:
    """Children of this process that are zygotes."""
    found = []
    for pid in children_of(os.getpid()):
        try:
            line = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
        if b"worker/zygote.py" in line:
            found.append(pid)
    return found


def alive(pid: int) -> bool:
    stat = read_stat(pid)
    return stat is not None and not stat.dead


def worker_pid(view: object) -> int:
    return int(view.worker["pid"])  # type: ignore[attr-defined]


async def warm_up(sup: Supervisor, script: str = ":") -> RunView:
    """One run, by a worker that is not free for another: its memory may hold an input.

    That is gone then: at its end it looks like one that waits for its run.
    """
    run = await sup.start(Command(argv=["sh", "-c", script], stdin="open"))
    seen = await sup.wait(run.id, timeout=PATIENCE)
    await eventually_async(lambda: not alive(worker_pid(seen)))
    return seen


async def test_workers_are_the_zygotes_children_and_report_like_any_other(state_dir: Path) -> None:
    async with Supervisor.open(state_dir, zygote=True) as sup:
        run = await sup.start(Command(argv=["sh", "-c", "echo $$; exit 5"]))
        final = await sup.wait(run.id, timeout=PATIENCE)
        assert final.outcome is not None
        assert final.outcome.code == 5
        live = await sup.start(Command(argv=["sleep", "3131"]))
        view = await sup.inspect(live.id)
        stat = read_stat(worker_pid(view))
        assert stat is not None
        assert stat.ppid in zygotes()
        await sup.stop(live.id, grace=5)


async def test_workers_live_on_when_the_zygote_ends_with_its_supervisor(state_dir: Path) -> None:
    async with Supervisor.open(state_dir, zygote=True) as sup:
        run = await sup.start(LISTENER)
        (zygote,) = zygotes()
    eventually(lambda: not alive(zygote))
    await check_goes_on(state_dir, run.id)


async def test_a_killed_zygote_is_made_anew(state_dir: Path) -> None:
    async with Supervisor.open(state_dir, zygote=True) as sup:
        first = await sup.start(Command(argv=["sleep", "3131"]))
        (zygote,) = zygotes()
        os.kill(zygote, signal.SIGKILL)
        await eventually_async(lambda: not alive(zygote))
        second = await sup.start(Command(argv=["true"]))
        assert (await sup.wait(second.id, timeout=PATIENCE)).outcome is not None
        third = await sup.start(Command(argv=["true"]))
        assert (await sup.wait(third.id, timeout=PATIENCE)).outcome is not None
        assert zygote not in zygotes()
        assert len(zygotes()) == 1
        assert (await sup.inspect(first.id)).state is RunState.RUNNING
        await sup.stop(first.id, grace=5)


async def test_a_silent_zygote_is_ended_and_the_run_started_by_exec_once(
    state_dir: Path, tmp_path: Path
) -> None:
    ledger = tmp_path / "ledger"
    async with Supervisor.open(state_dir, zygote=True) as sup:
        await warm_up(sup)
        (zygote,) = zygotes()
        os.kill(zygote, signal.SIGSTOP)
        run = await sup.start(Command(argv=["sh", "-c", f"echo ran >> '{ledger}'"]))
        final = await sup.wait(run.id, timeout=PATIENCE)
        assert final.outcome is not None
        assert not alive(zygote)
        page = await sup.events(run.id)
        warnings = [event.detail for event in page.events if event.kind == "run.warning"]
        assert warnings == [{"reason": "started_by_exec", "cause": "zygote silent"}]
    assert ledger.read_text() == "ran\n"


def handed_over(known: set[Path]) -> int | None:
    """Our descriptor of the log of a run that is being started; ``known``: the logs of earlier ones."""
    for link in Path("/proc/self/fd").iterdir():
        try:
            log = link.readlink()
        except OSError:
            continue
        if is_log(str(log)) and log not in known and not is_next_log(link.name):
            return int(link.name)
    return None


async def test_a_copy_of_the_lock_that_is_only_passing_costs_no_run(state_dir: Path) -> None:
    """As a process has that is being made for another run, when a silent zygote is ended in a burst."""
    async with Supervisor.open(state_dir, zygote=True) as sup:
        await warm_up(sup)
        known = set(state_dir.glob("runs/*/*.log"))
        (zygote,) = zygotes()
        os.kill(zygote, signal.SIGSTOP)
        start = asyncio.ensure_future(sup.start(Command(argv=["true"])))
        copy = os.dup(await eventually_async(lambda: handed_over(known)))
        await eventually_async(lambda: not alive(zygote))
        asyncio.get_running_loop().call_later(0.05, os.close, copy)
        assert (await sup.wait((await start).id, timeout=PATIENCE)).outcome is not None


async def test_without_a_zygote_there_is_none(state_dir: Path) -> None:
    async with Supervisor.open(state_dir, zygote=False) as sup:
        for _ in range(3):
            run = await sup.start(Command(argv=["true"]))
            await sup.wait(run.id, timeout=PATIENCE)
        assert zygotes() == []


def the_waiting_worker() -> list[int]:
    """The one forked ahead of its run: a child of our zygote without a run log; empty while in doubt."""
    found = []
    for zygote in zygotes():
        for pid in children_of(zygote):
            try:
                links = [os.readlink(link) for link in Path(f"/proc/{pid}/fd").iterdir()]
            except OSError:
                continue
            if alive(pid) and links and not any(map(is_log, links)):
                found.append(pid)
    return found if len(found) == 1 else []


async def test_the_worker_that_waited_gets_the_next_run_and_leaves_with_the_zygote(state_dir: Path) -> None:
    async with Supervisor.open(state_dir, zygote=True) as sup:
        await warm_up(sup)
        (waiting,) = await eventually_async(the_waiting_worker)
        run = await sup.start(Command(argv=["sh", "-c", "read line"], stdin="open"))
        assert worker_pid(await sup.inspect(run.id)) == waiting
        (next_one,) = await eventually_async(the_waiting_worker)
        assert next_one != waiting
        await sup.stop(run.id, grace=5)
    await eventually_async(lambda: not alive(next_one))


async def test_a_waiting_worker_that_was_killed_is_nobodys_loss(state_dir: Path) -> None:
    async with Supervisor.open(state_dir, zygote=True) as sup:
        await warm_up(sup)
        for number in range(3):
            (waiting,) = await eventually_async(the_waiting_worker)
            os.kill(waiting, signal.SIGKILL)
            await eventually_async(lambda pid=waiting: not alive(pid))  # type: ignore[misc]
            final = await warm_up(sup, f"exit {number}")
            assert final.outcome is not None
            assert final.outcome.code == number


async def test_what_a_worker_rehearsed_shows_nowhere(state_dir: Path) -> None:
    async with Supervisor.open(state_dir, zygote=True) as sup:
        await warm_up(sup)
        await eventually_async(the_waiting_worker)
        run = await sup.start(Command(argv=["sh", "-c", "ls -l /proc/self/fd /proc/$PPID/fd; kill -l"]))
        final = await sup.wait(run.id, timeout=PATIENCE)
        assert final.receipt is not None
        page = await sup.events(run.id)
        assert [event.seq for event in page.events] == list(range(1, len(page.events) + 1))
        text = "".join(event.text for event in page.events if event.kind == "output")
        assert "memfd" not in text.replace(IMAGE, "")
        assert final.receipt["stop"] is None


async def test_a_waiting_worker_that_stands_still_gets_no_run(state_dir: Path) -> None:
    async with Supervisor.open(state_dir, zygote=True) as sup:
        await warm_up(sup)
        (waiting,) = await eventually_async(the_waiting_worker)
        os.kill(waiting, signal.SIGSTOP)
        await eventually_async(lambda: (stat := read_stat(waiting)) is not None and stat.state == "T")
        run = await sup.start(Command(argv=["sh", "-c", "exit 7"]))
        final = await sup.wait(run.id, timeout=PATIENCE)
        assert worker_pid(final) != waiting
        assert final.outcome is not None
        assert final.outcome.code == 7
        os.kill(waiting, signal.SIGCONT)
        await eventually_async(lambda: not alive(waiting))


@pytest.mark.parametrize("most", [12, 16, 18, 20])
def test_a_zygote_with_few_descriptors_serves_all_the_same(most: int) -> None:
    """It comes to lack them somewhere in what it goes through before there are workers."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    channel, other_end = socket.socketpair()
    with ours, channel, other_end, open(os.devnull) as log:
        with theirs:
            zygote = spawn_zygote(theirs.fileno())
        resource.prlimit(zygote, resource.RLIMIT_NOFILE, (most, most))
        socket.send_fds(ours, [b"run"], [log.fileno(), channel.fileno()])
        ours.settimeout(PATIENCE)
        assert ours.recv(256).startswith(b"run pid ")
    os.waitpid(zygote, 0)
