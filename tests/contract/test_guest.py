"""A supervisor in somebody else's process: it changes nothing there, blocks nothing, prints nothing."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import subprocess
from pathlib import Path

from durable_supervisor import Command, Observer, Supervisor
from durable_supervisor.process.locks import LockState, probe_lock
from tests.contract.hosts import HostScript, host, log_of
from tests.support import PATIENCE, eventually_async, running

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
    while (await sup.inspect(third.id)).state.value != "quarantined":
        await asyncio.sleep(0.01)
    await sup.reconcile()
    await sup.resolve(third.id, "kill")
    stopped ="""
    code = LIFE.replace("\n    stopped =", lost) + "report(outcome=outcome)"
    script = HostScript(code, state_dir, tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    with script:
        out, err = script.process.communicate(timeout=PATIENCE)
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
    """Starting copies neither: a worker has one thread, and nothing of the 300 MB."""
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
    peaks, threads = [], []
    for _ in range(4):  # by exec, then by the zygote
        run = await sup.start(Command(argv=["sleep", "600"]))
        worker = (await sup.inspect(run.id)).worker["pid"]
        with open(f"/proc/{{worker}}/status") as file:
            status = dict(line.split(":", 1) for line in file)
        peaks.append(int(status["VmHWM"].split()[0]))
        threads.append(int(status["Threads"]))
        await sup.stop(run.id)
stop.set()
report(outcome=outcome, peaks=peaks, threads=threads)
"""
    facts = host(code, state_dir, tmp_path, before=before)
    assert facts["outcome"]["code"] == 5
    assert max(facts["peaks"]) < 100 * 1024, "KiB"
    assert set(facts["threads"]) == {1}


def test_the_loop_is_not_blocked(tmp_path: Path, state_dir: Path) -> None:
    """Runs start, end, are followed and stopped: nothing that waits is called on the loop's thread, and none
    of its turns takes long, by the processor time of that thread: a busy machine stalls every loop.
    """
    code = """
loop_thread, blocking = threading.get_ident(), []
def note(name):
    if threading.get_ident() == loop_thread:
        blocking.append(name)
def noting(name, call):
    def called(*args):
        note(name)
        return call(*args)
    return called
for name in ("fsync", "fdatasync"):
    setattr(os, name, noting(name, getattr(os, name)))
waits = {"sqlite3.connect", "subprocess.Popen", "time.sleep"}
sys.addaudithook(lambda event, args: note(event) if event in waits else None)
turns, last, stop = [], [time.thread_time()], []
async def watchdog():
    while not stop:
        await asyncio.sleep(0.002)
        now = time.thread_time()
        turns.append(now - last[0])
        last[0] = now
async with Supervisor.open(STATE) as sup:
    warm = await sup.start(Command(argv=["true"]))
    await sup.wait(warm.id, timeout=60)
    task = asyncio.ensure_future(watchdog())
    await asyncio.sleep(0)
    last[0] = time.thread_time()
    blocking.clear()
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
    report(longest=max(turns), blocking=blocking)
"""
    facts = host(code, state_dir, tmp_path)
    assert facts["blocking"] == []
    assert facts["longest"] < 0.25


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
        run_id = script.finish()["run"]

    async def later() -> None:
        async with Observer.open(state_dir) as seen:
            final = await seen.wait(run_id, timeout=PATIENCE)
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
    final = await sup.wait(run.id, timeout=60)
    event = await asyncio.wait_for(following, 60)
    other = await sup.start(Command(argv=["true"]))
    await sup.wait(other.id, timeout=60)
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
    time.sleep(30)  # until the test ends it; not for ever, should the test be killed itself
    os._exit(0)
report(child=child, run=run.id)
await stay()
"""
    with HostScript(code, state_dir, tmp_path) as script:
        facts = script.facts()
        script.kill()
    assert running(facts["child"])

    async def later() -> None:
        async with Supervisor.open(state_dir, wait=2) as sup:
            final = await sup.wait(facts["run"], timeout=PATIENCE)
            assert final.outcome is not None
            assert final.outcome.code == 6
        log = str(log_of(state_dir, facts["run"]))
        await eventually_async(lambda: probe_lock(log) is LockState.FREE)  # its worker has yet to go

    try:
        asyncio.run(later())
        assert running(facts["child"])
    finally:
        os.kill(facts["child"], signal.SIGKILL)


async def test_a_cancelled_callers_refusal_is_not_printed(state_dir: Path) -> None:
    """The start goes on without its caller; what it comes to is nobody's: the loop tells nothing."""
    told: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
    async with Supervisor.open(state_dir, max_concurrent_runs=1) as sup:
        await sup.start(Command(argv=["sleep", "60"]))
        caller = asyncio.create_task(sup.start(Command(argv=["true"])))
        await asyncio.sleep(0)
        caller.cancel()
        await asyncio.wait([caller])
    gc.collect()
    assert told == []
