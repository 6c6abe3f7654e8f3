"""A worker lasts as long as its run: no spinning, no leaks, and no way for a program to bring it down."""

from __future__ import annotations

import os
import platform
import resource
import signal
import socket
from pathlib import Path

import pytest

from durable_supervisor.model.events import Kind
from durable_supervisor.model.outcome import Outcome, OutcomeKind
from durable_supervisor.supervisor.observer import Observer
from tests.contract.peers import Peer
from tests.contract.runs import Marker, Runs, appear, gone, rests, sleeping
from tests.support import eventually_async

# Only the calling thread ends (exit(2), not exit_group(2)).
LEAVE = {"x86_64": 60, "aarch64": 93}.get(platform.machine())
HEADLESS = f"""
import ctypes, threading, time
threading.Thread(target=lambda: (print("alone", flush=True), time.sleep(3131))).start()
ctypes.CDLL(None).syscall({LEAVE}, 0)
"""


@pytest.mark.parametrize(
    ("script", "options"),
    [
        ("sleep {m}; :", {}),
        ("exec 1>&- 2>&-; sleep {m}; :", {}),
        ("sleep {m} & exit 0", {"completion": "tree"}),
        ("sleep {m} >/dev/null 2>&1 & exit 0", {"completion": "tree"}),
        ("sleep {m}; :", {"stdin": b"x" * 200_000}),
        ("sleep {m}; :", {"stdin": "open"}),
        ("exec 0<&-; sleep {m}; :", {"stdin": "open"}),
        ("trap '' TERM; sleep {m} & sleep {m}; sleep {m}; :", {"timeout": 0.05, "grace": 60}),
        ("printf '\\342'; sleep {m}; :", {"idle_timeout": 60, "timeout": 60}),
    ],
)
async def test_a_waiting_worker_sleeps(
    runs: Runs, marker: Marker, script: str, options: dict[str, object]
) -> None:
    run = await runs.sh(script.format(m=marker), **options)
    appear(marker, 1)
    await rests((await runs.worker(run.id)).pid)
    await runs.sup.stop(run.id, grace=0)
    gone(marker)


async def test_connections_leave_nothing_behind(runs: Runs, marker: Marker) -> None:
    run = await runs.sh(f"sleep {marker}; :")
    [path] = await eventually_async(lambda: list(runs.state_dir.rglob("*.sock")))
    pid = (await runs.worker(run.id)).pid
    before = len(os.listdir(f"/proc/{pid}/fd"))
    async with Observer.open(runs.state_dir) as other:  # who owns the run asks by its channel
        for _ in range(40):
            await other.signal(run.id, signal.SIGCONT)
    half_closed = Peer(path)
    half_closed.socket.shutdown(socket.SHUT_WR)
    await eventually_async(lambda: len(os.listdir(f"/proc/{pid}/fd")) <= before)
    half_closed.close()
    await rests((await runs.worker(run.id)).pid)
    await runs.sup.stop(run.id)
    gone(marker)


async def test_a_crowd_of_peers_leaves_descriptors_for_the_run(runs: Runs, marker: Marker) -> None:
    run = await runs.sh(f"read go; head -c 3000000 /dev/zero; sleep {marker}; :", stdin="open")
    [path] = await eventually_async(lambda: list(runs.state_dir.rglob("*.sock")))
    worker = await runs.worker(run.id)
    resource.prlimit(worker.pid, resource.RLIMIT_NOFILE, (48, 48))
    await runs.sup.write_stdin(run.id, b"\n")
    crowd = [Peer(path) for _ in range(50)]
    await eventually_async(lambda: sleeping(marker))
    await rests((await runs.worker(run.id)).pid)
    for peer in crowd:
        peer.close()
    await runs.sup.stop(run.id)
    gone(marker)
    receipt = await runs.receipt(run)
    assert receipt["output"]["stdout"] == {"bytes": 3_000_000, "dropped": 0, "complete": True}


async def test_a_worker_that_gets_no_thread_syncs_by_itself(runs: Runs, marker: Marker) -> None:
    """As when the program has used up all processes there may be."""
    run = await runs.sh(f"read go; head -c 3000000 /dev/zero; sleep {marker}; :", stdin="open")
    pid = (await runs.worker(run.id)).pid
    virtual = int(Path(f"/proc/{pid}/statm").read_text().split()[0]) * resource.getpagesize()
    # Room for buffers, not for another stack.
    limit = virtual + 5 * 1024 * 1024
    resource.prlimit(pid, resource.RLIMIT_AS, (limit, limit))
    await runs.sup.write_stdin(run.id, b"\n")
    await eventually_async(lambda: sleeping(marker))
    await runs.sup.stop(run.id)
    gone(marker)
    receipt = await runs.receipt(run)
    assert receipt["outcome"]["kind"] == "cancelled"
    assert receipt["output"]["stdout"] == {"bytes": 3_000_000, "dropped": 0, "complete": True}


@pytest.mark.skipif(LEAVE is None, reason="the number of exit(2) is not known here")
async def test_a_process_whose_first_thread_has_left_is_alive(runs: Runs) -> None:
    """It looks like a zombie in /proc, and must be stopped all the same."""
    run = await runs.python(HEADLESS)
    await runs.printed(run, b"alone")
    assert (await runs.sup.inspect(run.id)).state.value == "running"
    receipt = await runs.sup.stop(run.id)
    assert receipt.outcome == Outcome(OutcomeKind.CANCELLED, signal=signal.SIGTERM)


@pytest.mark.skipif(LEAVE is None, reason="the number of exit(2) is not known here")
async def test_so_is_one_that_is_left_over(runs: Runs) -> None:
    script = f"import os\nif os.fork(): os._exit(3)\n{HEADLESS}"
    run = await runs.python(script, grace=30)
    receipt = await runs.receipt(run)
    assert receipt["outcome"]["code"] == 3
    assert receipt["cleanup_confirmed"] is True
    signalled = await runs.events(run, kinds={Kind.PROGRAM_SIGNALLED})
    assert [one.detail["name"] for one in signalled] == ["SIGTERM"]
