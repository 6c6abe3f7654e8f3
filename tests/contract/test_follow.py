"""Followers: every event once and in order, whatever happens around them; idle ones cost nothing."""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import aclosing
from pathlib import Path

import pytest

from durable_supervisor import ErrorCode, Event, Observer, RunState, RunView, Supervisor, SupervisorError
from durable_supervisor.model.events import Kind
from durable_supervisor.supervisor import observer
from durable_supervisor.supervisor.following import news
from tests.contract.hosts import HostScript, kill_run, refused
from tests.contract.peers import Peer, socket_of
from tests.contract.runs import Marker, Runs, check_gapless, open_runs
from tests.support import PATIENCE, eventually, eventually_async, running

LINES = "i=0; while [ $i -lt {n} ]; do i=$((i+1)); echo line $i; done"


async def followed(seen: Observer, run_id: str, after: int = 0, **filters: object) -> list[Event]:
    return [event async for event in seen.follow(run_id, after=after, **filters)]  # type: ignore[arg-type]


async def first_events(seen: Observer, run_id: str, count: int, after: int = 0) -> list[Event]:
    found = []
    async with aclosing(seen.follow(run_id, after=after)) as events:
        async for event in events:
            found.append(event)
            if len(found) == count:
                break
    return found


def text_of(events: list[Event]) -> bytes:
    return b"".join(event.data for event in events if event.stream == "stdout")


async def test_a_late_follower_gets_everything(runs: Runs) -> None:
    """From a pipe in packet mode each write comes as a read of its own (pipe(2)): 5,000 events."""
    program = (
        "import fcntl, os\n"
        "for fd in (1, 2): fcntl.fcntl(fd, fcntl.F_SETFL, os.O_DIRECT)\n"
        "for n in range(5000): os.write(1 + n % 2, b'%d\\n' % n)\n"
    )
    run = await runs.python(program)
    await runs.wait(run)
    events = await followed(runs.sup, run.id)
    check_gapless(events)
    assert len(events) > 5000
    assert events[-1].kind == Kind.RUN_FINISHED
    numbers = sorted(
        int(line) for event in events if event.kind == Kind.OUTPUT for line in event.data.split()
    )
    assert numbers == list(range(5_000))


async def test_the_size_of_its_pages_does_not_matter(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    run = await runs.sh(LINES.format(n=500))
    await runs.wait(run)
    whole = await runs.events(run, size=10_000)
    for size in (1, 2, 7, 100):
        monkeypatch.setattr(observer, "FOLLOW_PAGE", size)
        assert await followed(runs.sup, run.id) == whole


async def test_who_is_told_of_an_event_reads_it_and_looks_at_nothing_else(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that tells lives: neither its run's evidence nor the journal is looked at for each event."""
    run = await runs.start(["cat"], stdin="open")
    looks = 0
    view = runs.sup._lookup.view

    async def counted(run_id: str) -> RunView:
        nonlocal looks
        looks += 1
        return await view(run_id)

    monkeypatch.setattr(runs.sup._lookup, "view", counted)
    numbers: list[int] = []
    async with aclosing(runs.sup.follow(run.id)) as events:
        await runs.sup.write_stdin(run.id, b"0\n")
        async for event in events:
            if event.kind == Kind.OUTPUT:
                numbers += map(int, event.data.split())
                if numbers[-1] < 50:
                    await runs.sup.write_stdin(run.id, b"%d\n" % (numbers[-1] + 1), eof=numbers[-1] == 49)
    assert numbers == list(range(51))
    assert looks < len(numbers) + 15  # each write looks once, too
    # From then on the end is told as ever.
    assert (await runs.wait(run)).state is RunState.FINISHED


async def test_a_worker_with_a_crowd_at_its_socket_is_asked_now_and_then(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes so many connections and no more: whom it turns away must not come again at once, for ever."""
    run = await runs.start(["cat"], stdin="open")
    path = await socket_of(runs, run)
    crowd: list[Peer] = []
    while len(crowd) < 127:  # and the supervisor
        crowd.append(Peer(path))
        assert await asyncio.to_thread(crowd[-1].ask, {"op": "ping"})  # the queue holds 64
    async with Observer.open(runs.state_dir) as other:
        times: list[float] = []
        view = other._lookup.view

        async def timed(run_id: str) -> RunView:
            times.append(time.monotonic())
            return await view(run_id)

        monkeypatch.setattr(other._lookup, "view", timed)
        follower = asyncio.create_task(followed(other, run.id))
        await eventually_async(lambda: len(times) >= 10)
        for one in crowd:
            one.close()
        await runs.sup.write_stdin(run.id, b"heard\n", eof=True)
        assert text_of(await follower) == b"heard\n"
    assert times[9] - times[0] > 0.5  # no machine is too slow for that


async def test_several_followers_from_anywhere(runs: Runs) -> None:
    """Live: each gets all that comes after its cursor, at its own pace."""
    run = await runs.sh("for i in $(seq 40); do echo $i; sleep 0.01; done")
    followers = [asyncio.ensure_future(followed(runs.sup, run.id, after)) for after in (0, 0, 1, 3)]

    async def slow() -> list[Event]:
        found = []
        async for event in runs.sup.follow(run.id):
            found.append(event)
            await asyncio.sleep(0.01)
        return found

    async with Observer.open(runs.state_dir) as other:
        theirs, late = await asyncio.gather(followed(other, run.id), slow())
    whole = await runs.events(run)
    check_gapless(whole)
    assert theirs == late == whole
    for task, after in zip(followers, (0, 0, 1, 3), strict=True):
        assert await task == [event for event in whole if event.seq > after]
    assert text_of(whole) == b"".join(b"%d\n" % n for n in range(1, 41))


async def test_it_is_woken_by_the_worker(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    """With pauses that nobody could wait for, each event still comes."""
    run = await runs.sh("while read line; do echo $line; done", stdin="open")
    await socket_of(runs, run)
    monkeypatch.setattr(news, "_FIRST_PAUSE", 600)
    monkeypatch.setattr(news, "_LONGEST_PAUSE", 600)
    async with aclosing(runs.sup.follow(run.id, kinds={Kind.OUTPUT})) as events:
        for number in range(15):
            await runs.sup.write_stdin(run.id, b"%d\n" % number)
            assert (await anext(events)).data == b"%d\n" % number
    await runs.sup.stop(run.id)


async def test_kinds_filter_without_renumbering(runs: Runs) -> None:
    run = await runs.sh("for i in 1 2 3; do echo $i; sleep 0.02; done; exit 4")
    ends = asyncio.ensure_future(followed(runs.sup, run.id, kinds={Kind.PROGRAM_EXITED, Kind.RUN_FINISHED}))
    quiet = asyncio.ensure_future(followed(runs.sup, run.id, output=False))
    await runs.wait(run)
    whole = await runs.events(run)
    wanted = (Kind.PROGRAM_EXITED, Kind.RUN_FINISHED)
    assert await ends == [event for event in whole if event.kind in wanted]
    assert await quiet == [event for event in whole if event.kind != Kind.OUTPUT]
    assert await followed(runs.sup, run.id, kinds={"nonsense"}) == []


FOLLOWER = """
seen = []
async with Observer.open(STATE) as obs:
    async for event in obs.follow(os.environ["RUN"], after=int(os.environ["AFTER"])):
        seen.append(event.seq)
        print(event.seq, flush=True)
report(seen=seen)
"""
HOST = """
async with Supervisor.open(STATE) as sup:
    script = "i=0; while [ ! -e $1 ]; do i=$((i+1)); echo tick $i; sleep 0.02; done"
    run = await sup.start(Command(argv=["sh", "-c", script, "sh", os.environ["GATE"]]), request_id="ticks")
    report(run=run.id)
    print_to = os.environ.get("TICKS")
    async for event in sup.follow(run.id, after=int(os.environ.get("AFTER", "0"))):
        with open(print_to, "a") as file:
            file.write(f"{event.seq}\\n")
"""


async def test_a_follower_resumes_over_the_death_of_its_host(tmp_path: Path, state_dir: Path) -> None:
    """kill -9 of the application, three times: by its cursor it goes on with the next event, none twice."""
    gate, ticks = tmp_path / "gate", tmp_path / "ticks"
    ticks.touch()
    runs_seen = set()
    for life in range(4):
        already = ticks.read_text().split()
        env = {"GATE": str(gate), "TICKS": str(ticks), "AFTER": already[-1] if already else "0"}
        with HostScript(HOST, state_dir, tmp_path, env=env) as owner:
            runs_seen.add(owner.facts()["run"])
            eventually(lambda: len(ticks.read_text().split()) >= len(already) + 8)  # noqa: B023
            if life < 3:
                owner.kill()
                continue
            gate.touch()
            owner.process.wait(PATIENCE)
    (run_id,) = runs_seen
    seqs = [int(seq) for seq in ticks.read_text().split()]
    assert seqs == list(range(1, len(seqs) + 1))
    async with Observer.open(state_dir) as seen:
        events = await followed(seen, run_id)
        check_gapless(events)
        assert len(events) == len(seqs)
        words = text_of(events).split()[1::2]
        assert [int(word) for word in words] == list(range(1, len(words) + 1)), "ticks without a gap"


async def test_a_follower_outlives_the_owner(tmp_path: Path, state_dir: Path, marker: Marker) -> None:
    """It belongs to another process and does not even notice."""
    gate = tmp_path / "gate"
    env = {"GATE": str(gate), "TICKS": str(tmp_path / "ticks")}
    with HostScript(HOST, state_dir, tmp_path, env=env) as owner:
        run_id = owner.facts()["run"]
        async with Observer.open(state_dir) as seen:
            task = asyncio.ensure_future(followed(seen, run_id))
            await first_events(seen, run_id, 6)
            owner.kill()
            await first_events(seen, run_id, 30)
            gate.touch()
            events = await asyncio.wait_for(task, PATIENCE)
    check_gapless(events)
    assert events[-1].kind == Kind.RUN_FINISHED


async def test_it_ends_when_the_outcome_is_unknown(state_dir: Path) -> None:
    """Worker killed, with an owner and with none: a follower is not left hanging."""
    async with open_runs(state_dir) as runs:
        run = await runs.sh("echo on; exec sleep 60")
        await runs.printed(run, b"on\n")
        view = await runs.sup.inspect(run.id)
        async with Observer.open(state_dir) as other:
            tasks = [asyncio.ensure_future(followed(seen, run.id)) for seen in (runs.sup, other)]
            await asyncio.sleep(0.05)
            await kill_run(view)
            ends = await asyncio.wait_for(asyncio.gather(*tasks), PATIENCE)
        for events in ends:
            check_gapless(events)
            assert text_of(events) == b"on\n"
        unowned = await runs.sh("echo on; exec sleep 60")
        await runs.printed(unowned, b"on\n")
        view = await runs.sup.inspect(unowned.id)
    async with Observer.open(state_dir) as other:
        task = asyncio.ensure_future(followed(other, unowned.id))
        await asyncio.sleep(0.05)
        await kill_run(view)
        assert text_of(await asyncio.wait_for(task, PATIENCE)) == b"on\n"
        with pytest.raises(SupervisorError):
            await other.wait(unowned.id, timeout=5)


async def test_it_ends_when_the_run_is_quarantined(runs: Runs) -> None:
    run = await runs.sh("echo on; exec sleep 60")
    await runs.printed(run, b"on\n")
    view = await runs.sup.inspect(run.id)
    task = asyncio.ensure_future(followed(runs.sup, run.id))
    assert view.worker is not None
    os.kill(int(str(view.worker["pid"])), 9)
    events = await asyncio.wait_for(task, PATIENCE)
    assert text_of(events) == b"on\n"
    assert (await runs.sup.inspect(run.id)).state is RunState.QUARANTINED
    await runs.sup.resolve(run.id, "kill")


async def test_it_ends_when_nothing_ever_ran(runs: Runs) -> None:
    run = await runs.start(["/no/such/program"])
    events = await asyncio.wait_for(followed(runs.sup, run.id), PATIENCE)
    assert events[-1].kind == Kind.RUN_NOT_STARTED


async def test_a_deleted_socket_stops_no_follower(runs: Runs) -> None:
    run = await runs.sh("while read line; do echo $line; done", stdin="open")
    (sock,) = await eventually_async(lambda: list(runs.state_dir.rglob("*.sock")))
    async with aclosing(runs.sup.follow(run.id, kinds={Kind.OUTPUT})) as before:
        await runs.sup.write_stdin(run.id, b"1\n")
        assert (await anext(before)).data == b"1\n"
        sock.unlink()
        async with (
            Observer.open(runs.state_dir) as other,
            aclosing(other.follow(run.id, output=True)) as after,
        ):
            await runs.sup.write_stdin(run.id, b"2\n")
            async with asyncio.timeout(PATIENCE):
                assert (await anext(before)).data == b"2\n"
                async for event in after:
                    if event.data == b"2\n":
                        break
                await other.write_stdin(run.id, b"3\n")  # no owner: by the socket, made anew for it
                assert sock.exists()
                assert (await anext(after)).kind.startswith("control")
    await runs.sup.stop(run.id)


async def test_a_follower_begun_before_the_socket_is_there(runs: Runs) -> None:
    """Started at once, many times: none misses the first events or the end."""

    async def one(number: int) -> None:
        run = await runs.sh(f"echo {number}; exit {number}")
        events = await followed(runs.sup, run.id)
        check_gapless(events)
        assert events[-1].kind == Kind.RUN_FINISHED
        assert text_of(events) == b"%d\n" % number

    async with asyncio.timeout(PATIENCE):
        await asyncio.gather(*(one(number) for number in range(12)))


async def test_leaving_stops_nothing(runs: Runs) -> None:
    run = await runs.sh("for i in $(seq 20); do echo $i; sleep 0.01; done; read line", stdin="open")
    for _ in range(3):
        await first_events(runs.sup, run.id, 4)
    task = asyncio.ensure_future(followed(runs.sup, run.id))
    await asyncio.sleep(0.02)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await runs.sup.write_stdin(run.id, b"", eof=True)
    final = await runs.wait(run)
    assert final.state is RunState.FINISHED
    check_gapless(await runs.events(run))


async def test_closing_ends_who_follows_and_who_waits(state_dir: Path, marker: Marker) -> None:
    sup = await Supervisor.open(state_dir)
    runs = Runs(sup, state_dir)
    run = await runs.sh(f"exec sleep {marker}")
    async with Observer.open(state_dir) as other:
        theirs = asyncio.ensure_future(followed(other, run.id))
        tasks = [
            asyncio.ensure_future(followed(sup, run.id)),
            asyncio.ensure_future(sup.wait(run.id)),
            asyncio.ensure_future(sup.wait(run.id, timeout=60)),
        ]
        await asyncio.sleep(0.1)
        await sup.close()
        for task in tasks:
            async with refused(ErrorCode.SUPERVISOR_CLOSED):
                await asyncio.wait_for(task, PATIENCE)
        assert not theirs.done(), "others go on"
        assert (await other.inspect(run.id)).state is RunState.RUNNING
        await other.stop(run.id, grace=1)
        assert (await asyncio.wait_for(theirs, PATIENCE))[-1].kind == Kind.RUN_FINISHED


def switches(pid: int) -> tuple[int, float]:
    """Voluntary context switches of all threads, and CPU seconds."""
    total = 0
    for task in os.listdir(f"/proc/{pid}/task"):
        text = Path(f"/proc/{pid}/task/{task}/status").read_text()
        total += int(text.split("voluntary_ctxt_switches:")[1].split()[0])
    stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return total, (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK")


async def test_an_idle_follower_sleeps(tmp_path: Path, state_dir: Path, marker: Marker) -> None:
    """One in its own process, beside a silent program; neither it nor the worker nor the owner wakes."""
    async with open_runs(state_dir) as runs:
        run = await runs.sh(f"echo on; exec sleep {marker}")
        await runs.printed(run, b"on\n")
        worker = (await runs.sup.inspect(run.id)).worker
        assert worker is not None
        code = FOLLOWER.replace("seen = []", "seen = []\nreport(pid=os.getpid())")
        with HostScript(code, state_dir, tmp_path, env={"RUN": run.id, "AFTER": "0"}, stdout=-3) as follower:
            follower.facts()
            pids = [follower.process.pid, int(str(worker["pid"]))]
            last, since = [switches(pid) for pid in pids], time.monotonic()
            while time.monotonic() - since < 0.5:  # until it has settled down to waiting
                await asyncio.sleep(0.05)
                now = [switches(pid) for pid in pids]
                if now != last:
                    last, since = now, time.monotonic()
            await asyncio.sleep(2)  # the silence is what is measured
            after = [switches(pid) for pid in pids]
            for before, later in zip(last, after, strict=True):
                assert later[0] - before[0] <= 6, "wake-ups in two seconds of silence"
                assert later[1] - before[1] <= 0.02
            await runs.sup.stop(run.id)
            follower.finish()
            assert not running(follower.process.pid)
