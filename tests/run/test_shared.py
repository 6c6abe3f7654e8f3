"""Without a supervisor of their own, calls share one for each process; with several processes, too."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

from durable_supervisor import Command, Supervisor, run
from durable_supervisor import open as open_session
from tests.contract.hosts import ROOT

PATIENCE = 60.0
PRELUDE = """
import asyncio, os, sys, threading, time
from durable_supervisor import Command, SupervisorError, run, stream, spawn, sync
def echo(*words): return Command(argv=["echo", *words])
"""


def begun(code: str, state_dir: Path) -> subprocess.Popen[str]:
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "DURABLE_SUPERVISOR_STATE_DIR": str(state_dir)}
    argv = [sys.executable, "-c", PRELUDE + code]
    return subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def ended(process: subprocess.Popen[str]) -> str:
    """What it printed; it must have ended well, by itself, and without a word on stderr."""
    try:
        out, err = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
    assert (process.returncode, err) == (0, ""), err
    return out


def script(code: str, state_dir: Path) -> str:
    return ended(begun(code, state_dir))


def test_many_loops_and_threads_one_after_the_other_and_at_once(state_dir: Path) -> None:
    code = """
for number in range(3):
    print(asyncio.run(run(echo(str(number)))).stdout_text(), end="")
def work(number):
    print(sync.run(echo(str(number))).stdout_text(), end="", flush=True)
threads = [threading.Thread(target=work, args=(number,)) for number in range(3, 6)]
threads += [threading.Thread(target=lambda: print(asyncio.run(run(echo("6"))).stdout_text(), end=""))]
for one in threads: one.start()
for one in threads: one.join()
async def last():
    async with stream(echo("7")) as events:
        async for line in events.lines(): print(line.text)
    async with await spawn(Command(argv=["cat"]), capture=True) as process:
        await process.write_stdin(b"8\\n", eof=True)
        print((await process.wait()).stdout_text(), end="")
asyncio.run(last())
"""
    assert sorted(script(code, state_dir).split()) == [str(number) for number in range(9)]


def test_a_forked_copy_makes_its_own(state_dir: Path) -> None:
    code = """
print(sync.run(echo("before")).stdout_text(), end="", flush=True)
if os.fork() == 0:
    print(sync.run(echo("copy")).stdout_text(), end="", flush=True)
    sys.exit()
print(sync.run(echo("original")).stdout_text(), end="", flush=True)
assert os.wait()[1] == 0
print(sync.run(echo("after")).stdout_text(), end="")
"""
    assert sorted(script(code, state_dir).split()) == ["after", "before", "copy", "original"]


def test_several_processes_share_a_directory(state_dir: Path) -> None:
    code = """
for number in range(3):
    print(asyncio.run(run(echo("x"))).stdout_text(), end="")
"""
    processes = [begun(code, state_dir) for _ in range(2)]
    assert [ended(one).split() for one in processes] == [["x"] * 3] * 2


async def test_beside_a_supervisor_that_serves(state_dir: Path) -> None:
    code = 'print(sync.run(echo("guest")).stdout_text(), end="")'
    async with open_session(state_dir) as session:
        process = begun(code, state_dir)
        own = await run(Command(argv=["echo", "own"]), supervisor=session)
        assert await asyncio.to_thread(ended, process) == "guest\n"
        assert own.stdout == b"own\n"


def test_at_exit_threads_that_python_waits_for_make_their_calls(state_dir: Path) -> None:
    code = """
begun = threading.Event()
def work():
    for number in range(3):
        print(sync.run(echo(str(number))).stdout_text(), end="", flush=True)
        begun.set()
threading.Thread(target=work).start()
begun.wait()
"""
    assert script(code, state_dir).split() == ["0", "1", "2"]


def test_a_pool_that_nobody_shut_down_does_not_hold_up_the_exit(state_dir: Path) -> None:
    code = """
from concurrent.futures import ThreadPoolExecutor
pool = ThreadPoolExecutor(1)
print(pool.submit(sync.run, echo("pooled")).result().stdout_text(), end="")
"""
    assert script(code, state_dir) == "pooled\n"


def test_a_first_call_at_exit_is_refused(state_dir: Path) -> None:
    code = """
import atexit
def call():
    try: sync.run(echo("late"))
    except SupervisorError as error: print(error.code.value)
atexit.register(call)
"""
    assert script(code, state_dir) == "SUPERVISOR_CLOSED\n"


async def test_a_process_that_exits_in_the_middle_leaves_nothing(state_dir: Path) -> None:
    """Its exit is not held up by a call in a thread that nobody waits for; the run ends with it."""
    code = """
def call():
    try: sync.run(Command(argv=["sleep", "3131"]))
    except SupervisorError as error: assert error.code == "SUPERVISOR_CLOSED", error
threading.Thread(target=call, daemon=True).start()
while True:
    from durable_supervisor.api.shared import shared
    from durable_supervisor.api.errand import block
    session = block(shared().session(), shared().loop())
    if block(session.list(states=["running"]), shared().loop()).runs: break
print("left")
"""
    assert await asyncio.to_thread(script, code, state_dir) == "left\n"
    async with Supervisor.open(state_dir) as sup:
        (one,) = (await sup.list()).runs
        seen = await sup.wait(one.id, timeout=PATIENCE)
    assert seen.receipt is not None
    assert seen.outcome is not None
    assert seen.outcome.kind == "cancelled"
