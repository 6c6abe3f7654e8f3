"""A supervisor in somebody else's process: it changes nothing there, blocks nothing, prints nothing."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

from durable_supervisor import Command, ErrorCode, Observer, RunState, Supervisor
from durable_supervisor.process.locks import LockState, probe_lock
from tests.contract.hosts import HostScript, check_error, host, kill_run, log_of, refused
from tests.contract.runs import Marker, Runs, appear, check_gapless, gone
from tests.support import eventually, eventually_async, running

# A whole life: three runs, a follower, a stop, an error, a close.
LIFE = """
async with Supervisor.open(STATE) as sup:
    first = await sup.start(Command(argv=["sh", "-c", "echo out; exit 5"]))
    second = await sup.start(Command(argv=["/no/such/program"]))
    third = await sup.start(Command(argv=["sleep", "60"]))
    kinds = [event.kind async for event in sup.follow(first.id)]
    final = await sup.wait(first.id, timeout=20)
    try:
        await sup.inspect("nonsense")
    except SupervisorError:
        pass
    stopped = await sup.stop(third.id)
outcome = final.outcome.to_dict()
"""


def dispositions() -> str:
    return """
def dispositions():
    with open("/proc/self/status") as file:
        lines = [line.split()[1] for line in file if line.startswith(("SigBlk", "SigIgn", "SigCgt"))]
    lines = [int(line, 16) & ~(3 << 31) for line in lines]  # 32 and 33 are the C library's, for its threads
    names = sorted(signal.valid_signals())
    handlers = [repr(signal.getsignal(one)).split("main_task=")[0] for one in names]
    wakeup = signal.set_wakeup_fd(-1)
    signal.set_wakeup_fd(wakeup)
    return [lines, handlers, wakeup]
"""


def test_no_signal_setting_is_touched(tmp_path: Path, state_dir: Path) -> None:
    code = f"before = dispositions()\n{LIFE}\nreport(before=before, after=dispositions(), outcome=outcome)"
    facts = host(code, state_dir, tmp_path, before=dispositions())
    assert facts["before"] == facts["after"]
    assert facts["outcome"]["code"] == 5


def test_nothing_else_of_the_host_is_touched(tmp_path: Path, state_dir: Path) -> None:
    before = """
import logging, gc, locale, resource, warnings
def settings():
    root, ours = logging.getLogger(), logging.getLogger("durable_supervisor")
    kept = os.umask(0o022)
    os.umask(kept)
    return [os.getcwd(), dict(os.environ), kept, gc.get_threshold(),
            sys.excepthook is sys.__excepthook__,
            locale.setlocale(locale.LC_ALL), root.level, repr(root.handlers), ours.level,
            resource.getrlimit(resource.RLIMIT_NOFILE), repr(warnings.filters), sys.getrecursionlimit(),
            os.getsid(0), os.getpgid(0), threading.excepthook is threading.__excepthook__, list(sys.path)]
"""
    code = f"before = settings()\n{LIFE}\nreport(before=before, after=settings())"
    facts = host(code, state_dir, tmp_path, before=before)
    assert facts["before"] == facts["after"]


def test_it_prints_nothing(tmp_path: Path, state_dir: Path) -> None:
    """Not a line on stdout or stderr, not even when runs are lost or the worker is killed."""
    lost = """
    os.kill((await sup.inspect(third.id)).worker["pid"], 9)
    await asyncio.sleep(0.2)
    await sup.reconcile()
    await sup.resolve(third.id, "kill")
    stopped ="""
    code = LIFE.replace("\n    stopped =", lost) + "report(outcome=outcome)"
    script = HostScript(code, state_dir, tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    with script:
        out, err = script.process.communicate(timeout=30)
        assert (out, err) == (b"", b"")
        assert script.finish()["outcome"]["code"] == 5


def test_sigchld_ignored(tmp_path: Path, state_dir: Path) -> None:
    """As a host that never wants to hear of children sets it; exit codes come through all the same."""
    code = f"signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n{LIFE}\nreport(outcome=outcome, kinds=kinds)"
    facts = host(code, state_dir, tmp_path)
    assert facts["outcome"] == {"kind": "exited", "code": 5, "signal": None}
    assert facts["kinds"][-1] == "run.finished"


def test_a_host_that_reaps_everything_and_has_children_of_its_own(tmp_path: Path, state_dir: Path) -> None:
    code = f"""
reaped, children, stop = [], [], threading.Event()
def reap():
    while not stop.is_set():
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            pid = 0
        if pid:
            reaped.append((pid, os.waitstatus_to_exitcode(status)))
        else:
            time.sleep(0.0005)
reaper = threading.Thread(target=reap)
reaper.start()
for number in range(5):
    children.append(os.posix_spawn("/bin/sh", ["sh", "-c", f"sleep 0.{{number}}; exit {{number}}"], {{}}))
{LIFE}
deadline = time.monotonic() + 10
while len([one for one in reaped if one[0] in children]) < 5 and time.monotonic() < deadline:
    await asyncio.sleep(0.01)
stop.set()
reaper.join()
report(outcome=outcome, own=sorted(code for pid, code in reaped if pid in children))
"""
    facts = host(code, state_dir, tmp_path)
    assert facts["outcome"]["code"] == 5
    assert facts["own"] == [0, 1, 2, 3, 4], "its children's statuses are its own"


def test_the_hosts_children_are_not_reaped_by_us(tmp_path: Path, state_dir: Path) -> None:
    code = f"""
import subprocess
child = subprocess.Popen(["sh", "-c", "exit 42"])
process = await asyncio.create_subprocess_exec("sh", "-c", "exit 43")
{LIFE}
report(outcome=outcome, codes=[child.wait(), await process.wait()])
"""
    facts = host(code, state_dir, tmp_path)
    assert facts["codes"] == [42, 43]


def test_a_host_without_stdin_stdout_and_stderr(tmp_path: Path, state_dir: Path) -> None:
    """0, 1 and 2 are closed: descriptors with these numbers are handed out for locks and sockets."""
    code = f"{LIFE}\nreport(outcome=outcome, kinds=kinds, stopped=stopped.to_dict())"
    before = "os.closerange(0, 3)"
    facts = host(code, state_dir, tmp_path, before=before)
    assert facts["outcome"]["code"] == 5
    assert "output" in facts["kinds"]
    assert facts["stopped"]["confirmed"]


def test_a_host_with_threads_and_a_lot_of_memory(tmp_path: Path, state_dir: Path) -> None:
    """Starting copies neither: 300 MB more make no difference that anybody could see."""
    before = """
ballast = bytearray(300 * 1024 * 1024)
for index in range(0, len(ballast), 4096):
    ballast[index] = 1
stop = threading.Event()
def work():
    while not stop.wait(0.001):
        sum(range(50))
for _ in range(8):
    threading.Thread(target=work, daemon=True).start()
"""
    code = f"""
{LIFE}
async with Supervisor.open(STATE) as sup:
    times = []
    for _ in range(10):
        began = time.monotonic()
        run = await sup.start(Command(argv=["true"]))
        times.append(time.monotonic() - began)
        seen = await sup.wait(run.id, timeout=10)
        with open(f"/proc/{{os.getpid()}}/status") as file:
            pass
stop.set()
report(outcome=outcome, median=sorted(times)[5])
"""
    facts = host(code, state_dir, tmp_path, before=before)
    assert facts["outcome"]["code"] == 5
    assert facts["median"] < 0.5


def test_the_loop_is_not_blocked(tmp_path: Path, state_dir: Path) -> None:
    """A watchdog measures the longest stall while runs start, end, are followed and stopped."""
    code = """
stalls, last, stop = [], [time.perf_counter()], []
async def watchdog():
    while not stop:
        await asyncio.sleep(0.002)
        now = time.perf_counter()
        stalls.append(now - last[0])
        last[0] = now
async with Supervisor.open(STATE) as sup:
    warm = await sup.start(Command(argv=["true"]))
    await sup.wait(warm.id, timeout=10)
    task = asyncio.ensure_future(watchdog())
    await asyncio.sleep(0)
    last[0] = time.perf_counter()
    runs = await asyncio.gather(*(sup.start(Command(argv=["sh", "-c", "seq 1 2000"])) for _ in range(12)))
    async def follow(run):
        return sum([1 async for event in sup.follow(run.id)])
    await asyncio.gather(*(follow(run) for run in runs), *(sup.wait(run.id, timeout=20) for run in runs))
    await sup.list(limit=100)
    live = await sup.start(Command(argv=["sleep", "60"]))
    await sup.inspect(live.id)
    await sup.stop(live.id)
    await sup.reconcile()
    stop.append(1)
    await task
report(longest=max(stalls), median=sorted(stalls)[len(stalls) // 2])
"""
    facts = host(code, state_dir, tmp_path)
    assert facts["longest"] < 0.25, "a busy machine stalls a loop too, but not for that long"


def test_the_hosts_own_executor_may_be_busy(tmp_path: Path, state_dir: Path) -> None:
    """All threads of the loop's default executor hang: nothing here waits for them."""
    code = f"""
release = threading.Event()
loop = asyncio.get_running_loop()
from concurrent.futures import ThreadPoolExecutor
loop.set_default_executor(ThreadPoolExecutor(max_workers=1))
hanging = [loop.run_in_executor(None, release.wait) for _ in range(4)]
async with asyncio.timeout(20):
    {LIFE.strip().replace(chr(10), chr(10) + "    ")}
    async with Supervisor.open(STATE) as sup:
        await sup.reconcile()
release.set()
await asyncio.gather(*hanging)
report(outcome=outcome)
"""
    assert host(code, state_dir, tmp_path)["outcome"]["code"] == 5


def test_two_loops_one_after_the_other_and_two_at_once(tmp_path: Path, state_dir: Path) -> None:
    before = """
def life(path, results, name):
    async def one():
        async with Supervisor.open(path) as sup:
            run = await sup.start(Command(argv=["sh", "-c", "exit 3"]))
            return (await sup.wait(run.id, timeout=20)).outcome.code
    results[name] = asyncio.run(one())
results = {}
life(STATE, results, "first")
life(STATE, results, "second")
threads = [threading.Thread(target=life, args=(STATE + name, results, name)) for name in ("a", "b")]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""
    facts = host("report(results=results)", state_dir, tmp_path, before=before)
    assert facts["results"] == {"first": 3, "second": 3, "a": 3, "b": 3}


def test_a_loop_that_is_thrown_away_unclosed(tmp_path: Path, state_dir: Path) -> None:
    """The host forgets to close: it still ends, and the run goes on."""
    code = """
sup = await Supervisor.open(STATE)
run = await sup.start(Command(argv=["sh", "-c", "sleep 0.5; exit 3"]))
report(run=run.id)
"""
    with HostScript(code, state_dir, tmp_path) as script:
        run_id = script.finish(10)["run"]

    async def later() -> None:
        async with Observer.open(state_dir) as seen:
            final = await seen.wait(run_id, timeout=10)
            assert final.outcome is not None
            assert final.outcome.code == 3

    asyncio.run(later())


# Forks.


def test_a_forked_copy_is_refused_and_harms_nothing(tmp_path: Path, state_dir: Path) -> None:
    """Whatever the copy calls, closes or throws away: the original does not notice."""
    code = """
import gc
async with Supervisor.open(STATE) as sup, Observer.open(STATE) as seen:
    run = await sup.start(Command(argv=["sh", "-c", "read line; exit 4"], stdin="open"))
    following = asyncio.ensure_future(anext(sup.follow(run.id, after=3)))
    await asyncio.sleep(0.05)
    child = os.fork()
    if child == 0:
        codes = []
        for call in (lambda: sup.start(Command(argv=["true"])), lambda: sup.inspect(run.id),
                     lambda: sup.stop(run.id), lambda: sup.wait(run.id), lambda: seen.list(),
                     lambda: sup.reconcile(), lambda: sup.shutdown(), lambda: sup.resolve(run.id)):
            try:
                await call()
            except SupervisorError as error:
                codes.append(error.code.value)
        await sup.close()
        await seen.close()
        sup = seen = None
        gc.collect()
        report(codes=codes)
        os._exit(9)  # not through the loop's end: that would take the descriptors out of the shared epoll
    while os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        await asyncio.sleep(0.01)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    try:
        async with Supervisor.open(STATE, wait=0):
            second = "got in"
    except SupervisorError as error:
        second = error.code.value
    with open(REPORT) as file:
        codes = json.load(file)["codes"]
    await sup.write_stdin(run.id, b"\\n")
    final = await sup.wait(run.id, timeout=10)
    event = await asyncio.wait_for(following, 10)
    other = await sup.start(Command(argv=["true"]))
    await sup.wait(other.id, timeout=10)
report(codes=codes, status=status, second=second, code=final.outcome.code, event=event.kind)
"""
    facts = host(code, state_dir, tmp_path)
    assert facts["codes"] == ["FORKED_COPY"] * 8
    assert facts["status"] == 9
    assert facts["second"] == "STATE_DIR_IN_USE", "the copy's end took no lock away"
    assert facts["code"] == 4
    assert facts["event"]


def test_a_copy_that_lives_on_holds_nothing(tmp_path: Path, state_dir: Path) -> None:
    """kill -9 of the host: the directory is free, although its fork is alive."""
    code = """
sup = await Supervisor.open(STATE)
run = await sup.start(Command(argv=["sh", "-c", "sleep 0.2; exit 6"]))
child = os.fork()
if child == 0:
    time.sleep(30)
    os._exit(0)
report(child=child, run=run.id)
await asyncio.sleep(30)
"""
    with HostScript(code, state_dir, tmp_path) as script:
        facts = script.facts()
        script.kill()
    assert running(facts["child"])

    async def later() -> None:
        async with Supervisor.open(state_dir, wait=2) as sup:
            final = await sup.wait(facts["run"], timeout=10)
            assert final.outcome is not None
            assert final.outcome.code == 6
        assert probe_lock(str(log_of(state_dir, facts["run"]))) is LockState.FREE

    try:
        asyncio.run(later())
        assert running(facts["child"])
    finally:
        os.kill(facts["child"], signal.SIGKILL)


# Cancelling and closing.


async def test_a_cancelled_start_leaves_a_whole_start_behind(runs: Runs, marker: Marker) -> None:
    """Cancelled at many moments: afterwards each id stands for one whole run, or was never seen."""
    command = Command(argv=["sleep", str(marker)])
    for number in range(12):
        task = asyncio.ensure_future(runs.sup.start(command, request_id=f"r-{number}"))
        for _ in range(number):
            await asyncio.sleep(0.001)
        task.cancel()
        await asyncio.wait([task])
    await eventually_async(lambda: not runs.sup._tasks)
    known = {view.request_id: view for view in (await runs.sup.list()).runs}
    for view in known.values():
        assert view.state is RunState.RUNNING, view
        check_gapless((await runs.sup.events(view.id)).events)
    appear(marker, len(known))
    for number in range(12):
        again = await runs.sup.start(command, request_id=f"r-{number}")
        if f"r-{number}" in known:
            assert again.id == known[f"r-{number}"].id
    assert len(marker.alive()) == 12
    report = await runs.sup.shutdown(timeout=10)
    assert (len(report.stopped), report.unconfirmed) == (12, [])
    gone(marker)


async def test_closing_finishes_what_was_begun(state_dir: Path, marker: Marker) -> None:
    sup = await Supervisor.open(state_dir)
    starts = [
        asyncio.ensure_future(sup.start(Command(argv=["sleep", str(marker)]), request_id=f"r-{n}"))
        for n in range(4)
    ]
    await asyncio.sleep(0.002)
    closes = [asyncio.ensure_future(sup.close()) for _ in range(3)]
    answers = await asyncio.gather(*starts, return_exceptions=True)
    await asyncio.gather(*closes)
    await sup.close()
    begun = [one for one in answers if not isinstance(one, BaseException)]
    for error in answers:
        if isinstance(error, BaseException):
            check_error(error, ErrorCode.SUPERVISOR_CLOSED)  # type: ignore[arg-type]
    async with Supervisor.open(state_dir, wait=0) as sup:
        assert {view.id for view in (await sup.list()).runs} == {run.id for run in begun}
        assert len(marker.alive()) == len(begun)
        await sup.shutdown(timeout=10)
    gone(marker)


async def test_use_after_close_is_refused_by_every_verb(state_dir: Path) -> None:
    async with Supervisor.open(state_dir) as sup:
        run = await sup.start(Command(argv=["true"]))
        await sup.wait(run.id, timeout=10)
    seen = Observer.open(state_dir)
    await seen.close()
    calls: list[Any] = [
        lambda: sup.start(Command(argv=["true"])),
        lambda: sup.reconcile(),
        lambda: sup.resolve(run.id),
        lambda: sup.shutdown(),
    ]
    for one in (sup, seen):
        calls += [
            lambda one=one: one.inspect(run.id),
            lambda one=one: one.list(),
            lambda one=one: one.events(run.id),
            lambda one=one: one.feed(),
            lambda one=one: one.wait(run.id),
            lambda one=one: one.stop(run.id),
            lambda one=one: one.signal(run.id, 15),
            lambda one=one: one.write_stdin(run.id, b"x"),
            lambda one=one: anext(one.follow(run.id)),
        ]
    for call in calls:
        async with refused(ErrorCode.SUPERVISOR_CLOSED):
            await call()
    await sup.close()
    await seen.close()


async def test_shutdown_stops_all_and_names_what_it_could_not_confirm(runs: Runs, marker: Marker) -> None:
    """A stopped worker cannot answer: bounded, named, and left alone."""
    good = [await runs.sh(f"exec sleep {marker}") for _ in range(3)]
    ended = await runs.sh("exit 0")
    await runs.wait(ended)
    await runs.sup.reconcile()
    stuck = await runs.sh(f"exec sleep {marker}")
    view = await runs.sup.inspect(stuck.id)
    assert view.worker is not None
    await eventually_async(log_of(runs.state_dir, stuck.id).with_name(f"{stuck.id}.sock").exists)
    pid = int(str(view.worker["pid"]))
    os.kill(pid, signal.SIGSTOP)
    try:
        loop = asyncio.get_running_loop()
        began = loop.time()
        report = await runs.sup.shutdown(stop_runs=True, timeout=2)
        assert loop.time() - began < 8
        assert set(report.stopped) == {run.id for run in good}
        assert report.unconfirmed == [stuck.id]
        async with refused(ErrorCode.SUPERVISOR_CLOSED):
            await runs.sh("exit 0")
        assert len(marker.alive()) == 1
    finally:
        os.kill(pid, signal.SIGCONT)
    # The stop that it could not answer was heard all the same.
    async with Observer.open(runs.state_dir) as seen:
        final = await seen.wait(stuck.id, timeout=10)
        assert final.outcome is not None
        assert final.outcome.kind.value == "cancelled"
    gone(marker)


async def test_shutdown_stops_also_what_is_just_starting(state_dir: Path, marker: Marker) -> None:
    sup = await Supervisor.open(state_dir)
    starting = [
        asyncio.ensure_future(sup.start(Command(argv=["sleep", str(marker)]), request_id=f"r-{n}"))
        for n in range(4)
    ]
    await asyncio.sleep(0)
    report = await sup.shutdown(timeout=10)
    answers = await asyncio.gather(*starting, return_exceptions=True)
    begun = {one.id for one in answers if not isinstance(one, BaseException)}
    assert set(report.stopped) == begun
    gone(marker)


async def test_shutdown_without_stopping_leaves_runs_alone(state_dir: Path, marker: Marker) -> None:
    sup = await Supervisor.open(state_dir)
    run = await sup.start(Command(argv=["sleep", str(marker)]))
    report = await sup.shutdown(stop_runs=False)
    assert (report.stopped, report.unconfirmed) == ([], [])
    appear(marker, 1)
    async with Supervisor.open(state_dir) as sup:
        view = await sup.inspect(run.id)
        assert view.state is RunState.RUNNING
        await kill_run(view)


# Hygiene.


def descriptors() -> dict[str, str]:
    found = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            found[name] = os.readlink(f"/proc/self/fd/{name}")
        except FileNotFoundError:
            continue
    return found


def children() -> list[str]:
    text = "".join(
        Path(f"/proc/self/task/{task}/children").read_text() for task in os.listdir("/proc/self/task")
    )
    return text.split()


async def test_a_hundred_starts_leak_nothing(state_dir: Path) -> None:
    """Descriptors, children, threads, tasks and files stay as many as they were."""
    outside = descriptors(), children(), asyncio.all_tasks()
    async with Supervisor.open(state_dir) as sup:

        async def one(number: int) -> None:
            run = await sup.start(Command(argv=["sh", "-c", f"echo {number}; exit 0"]))
            final = await sup.wait(run.id, timeout=20)
            assert final.state is RunState.FINISHED

        for number in range(10):
            await one(number)

        def settled() -> bool:
            return not sup._dispatcher.links

        await eventually_async(settled, message="links of ended runs stay")
        before = descriptors(), len(children())
        for number in range(60):
            await one(number)
        await asyncio.gather(*(one(number) for number in range(40)))
        await eventually_async(settled)
        await eventually_async(lambda: len(children()) <= before[1], message="zombies")
        await eventually_async(lambda: len(descriptors()) <= len(before[0]), message="descriptors")
        names = sorted(path.name for path in state_dir.rglob("*") if path.is_file())
        assert len([name for name in names if name.endswith(".log")]) == 110
        assert list(state_dir.rglob("*.sock")) == []
        assert len(names) < 110 + 8
    await eventually_async(lambda: len(children()) <= len(outside[1]))
    await eventually_async(lambda: len(descriptors()) == len(outside[0]))
    assert asyncio.all_tasks() == outside[2]
    for path in (state_dir / "runs").rglob("*.log"):
        eventually(lambda path=path: probe_lock(str(path)) is LockState.FREE)  # type: ignore[misc]


async def test_opening_and_closing_leaks_nothing(state_dir: Path) -> None:
    async with Supervisor.open(state_dir) as sup:
        run = await sup.start(Command(argv=["true"]))
        await sup.wait(run.id, timeout=10)
    before = len(descriptors())
    for _ in range(15):
        async with Supervisor.open(state_dir) as sup:
            await sup.inspect(run.id)
        async with Observer.open(state_dir) as seen:
            await seen.list()
            assert [event async for event in seen.follow(run.id)]
        async with Supervisor.open(state_dir), refused(ErrorCode.STATE_DIR_IN_USE):
            await Supervisor.open(state_dir, wait=0)
    await eventually_async(lambda: len(descriptors()) == before)


async def test_refused_starts_leak_nothing(runs: Runs) -> None:
    for _ in range(4):  # what is made once, is made now
        await runs.start(["/no/such/program"])
    await eventually_async(lambda: not runs.sup._dispatcher.links)
    before = len(descriptors())
    for _ in range(20):
        run = await runs.start(["/no/such/program"])
        assert run.state is RunState.NOT_STARTED
        async with refused(ErrorCode.IDEMPOTENCY_CONFLICT):
            await runs.sup.start(Command(argv=["other"]), request_id=run.request_id)
    await eventually_async(lambda: not runs.sup._dispatcher.links)
    await eventually_async(lambda: len(descriptors()) <= before)
