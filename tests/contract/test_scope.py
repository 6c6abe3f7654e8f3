"""A run whose lifetime is a scope ends with the process that asked for it, and with nothing else."""

from __future__ import annotations

import os
import signal
import textwrap
from pathlib import Path
from typing import Any

import pytest

from durable_supervisor import (
    AsyncClient,
    Command,
    ErrorCode,
    Observer,
    RunState,
    RunView,
    Supervisor,
)
from durable_supervisor.model.identity import identity_of
from durable_supervisor.supervisor.admission.host import read_host
from tests.contract.hosts import HostScript, host, refused
from tests.contract.runs import Marker, appear, gone, state_of
from tests.support import PATIENCE, eventually, running

STARTS = """
async with Supervisor.open(STATE) as sup:
    run = await sup.start(Command(argv={argv!r}), lifetime="scope", limits=Limits(grace=5))
"""
STAYS = """
report(run=run.id)
await stay()
"""


def starting(argv: list[str], then: str = STAYS) -> str:
    """A host that starts this as a scoped run, and goes on with ``then``."""
    return STARTS.format(argv=argv) + textwrap.indent(textwrap.dedent(then), "    ")


async def ended(state_dir: Path, run_id: str) -> RunView:
    async with Observer.open(state_dir) as seen:
        return await seen.wait(run_id, timeout=60)


def stop_of(seen: RunView) -> dict[str, Any]:
    assert seen.receipt is not None
    found = seen.receipt["stop"]
    assert isinstance(found, dict)
    return found


async def still_running(state_dir: Path, run_id: str) -> None:
    """Nothing has begun to stop it: its worker has had its turns since, and says so."""
    async with Observer.open(state_dir) as seen:
        for _ in range(2):
            await seen.signal(run_id, "WINCH", timeout=PATIENCE)
        view = await seen.inspect(run_id)
    assert view.state is RunState.RUNNING
    program = identity_of(view.program)
    assert program is not None
    assert running(program.pid)


async def test_the_host_is_killed(state_dir: Path, tmp_path: Path, marker: Marker) -> None:
    argv = ["sh", "-c", f"sleep {marker} & setsid sleep {marker} & wait"]
    with HostScript(starting(argv), state_dir, tmp_path) as script:
        run = script.facts()["run"]
        appear(marker, 2)
    seen = await ended(state_dir, run)
    assert seen.outcome is not None
    assert seen.outcome.kind == "cancelled"
    assert (stop_of(seen)["reason"], stop_of(seen)["grace"]) == ("host_gone", 5.0)
    assert seen.lifetime == "scope"
    gone(marker)


async def test_a_detached_run_outlives_it(state_dir: Path, tmp_path: Path, marker: Marker) -> None:
    code = starting(["sleep", str(marker)]).replace('"scope"', '"detached"')
    with HostScript(code, state_dir, tmp_path) as script:
        run = script.facts()["run"]
    async with Supervisor.open(state_dir) as sup:
        assert (await sup.inspect(run)).state is RunState.RUNNING
        await sup.stop(run, grace=0)
    gone(marker)


NEW_PID_NAMESPACE = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
SERVES = """
from durable_supervisor.server.server import Server
async with Supervisor.open(STATE) as sup:
    server = Server(sup)
    await server.start()
    report(pid=os.getpid())
    await stay()
"""
ASKS = """
from durable_supervisor.client.aio import AsyncClient
async with AsyncClient.connect(STATE) as client:
    run = await client.start(Command(argv={argv!r}), lifetime="scope", limits=Limits(grace=5))
    report(run=run.id, pid=os.getpid())
    await stay()
"""


async def test_over_the_socket_the_host_is_whoever_asks(
    state_dir: Path, tmp_path: Path, marker: Marker
) -> None:
    """Its end counts; the service's does not."""
    with HostScript(SERVES, state_dir, tmp_path) as service:
        service.facts()
        with HostScript(ASKS.format(argv=["sleep", str(marker)]), state_dir, tmp_path) as client:
            run = client.facts()["run"]
            service.kill()
            await still_running(state_dir, run)
    assert stop_of(await ended(state_dir, run))["reason"] == "host_gone"
    gone(marker)


# What is executed by a host instead of its own program.
OTHER = """
import os, sys, time
os.rename(sys.argv[2], sys.argv[1])
time.sleep(600)
"""
EXECUTES = f"""
with open(REPORT + ".new", "w") as file:
    json.dump(dict(run=run.id), file)
other = [sys.executable, "-c", {OTHER!r}, REPORT, REPORT + ".new"]
"""
# What a host may do that is not its end; once it has reported, it is done.
LIVES = {
    "it closes its supervisor": """
        await sup.close()
        report(run=run.id)
        await stay()
    """,
    "it executes another program": f"{EXECUTES}os.execv(other[0], other)",
    "a thread executes another program": f"""{EXECUTES}
threading.Thread(target=os.execv, args=(other[0], other)).start()
await stay()
""",
    "its first thread ends": """
        import ctypes
        def stay_on():
            while open("/proc/self/stat").read().rpartition(")")[2].split()[0] != "Z":
                time.sleep(0.01)
            report(run=run.id)
            time.sleep(600)
        threading.Thread(target=stay_on).start()
        ctypes.CDLL(None).pthread_exit(None)
    """,
    "it is stopped by a signal": """
        report(run=run.id)
        os.kill(os.getpid(), signal.SIGSTOP)
    """,
}


@pytest.mark.parametrize("then", LIVES.values(), ids=LIVES)
async def test_a_host_that_lives_on(state_dir: Path, tmp_path: Path, marker: Marker, then: str) -> None:
    with HostScript(starting(["sleep", str(marker)], then), state_dir, tmp_path) as script:
        run = script.facts()["run"]
        if "SIGSTOP" in then:
            eventually(lambda: state_of(script.process.pid) == "T")
        await still_running(state_dir, run)
    assert stop_of(await ended(state_dir, run))["reason"] == "host_gone"
    gone(marker)


async def test_a_helper_that_it_forked_does_not_count(
    state_dir: Path, tmp_path: Path, marker: Marker
) -> None:
    """It has all that a fork copies, and lives on."""
    then = """
        helper = os.fork()
        if helper == 0:
            time.sleep(600)
        report(run=run.id, helper=helper)
        await stay()
    """
    with HostScript(starting(["sleep", str(marker)], then), state_dir, tmp_path) as script:
        facts = script.facts()
        script.kill()
        try:
            assert stop_of(await ended(state_dir, facts["run"]))["reason"] == "host_gone"
            assert running(facts["helper"])
        finally:
            os.kill(facts["helper"], signal.SIGKILL)
            eventually(lambda: not running(facts["helper"]))
    gone(marker)


async def test_it_leaves_by_itself(state_dir: Path, tmp_path: Path, marker: Marker) -> None:
    """Its end is its end: no matter that it was a good one, and closed everything."""
    facts = host(starting(["sleep", str(marker)], "report(run=run.id)"), state_dir, tmp_path)
    assert stop_of(await ended(state_dir, facts["run"]))["reason"] == "host_gone"
    gone(marker)


async def test_the_first_to_ask_is_the_host(state_dir: Path, tmp_path: Path, marker: Marker) -> None:
    """Whoever sends the same request again meets the run as it is, and may come and go."""
    command = Command(argv=["sleep", str(marker)])
    async with Supervisor.open(state_dir) as sup:
        run = await sup.start(command, request_id="r-1", lifetime="scope")
        await sup.close()
        again = f"""
            async with Supervisor.open(STATE) as sup:
                run = await sup.start(Command(argv=["sleep", "{marker}"]), request_id="r-1", lifetime="scope")
                report(run=run.id, admission=run.admission)
        """
        assert host(again, state_dir, tmp_path) == {"run": run.id, "admission": "existing"}
        await still_running(state_dir, run.id)
    async with Supervisor.open(state_dir) as sup, refused(ErrorCode.IDEMPOTENCY_CONFLICT) as caught:
        await sup.start(command, request_id="r-1")
    assert caught().details["fields"] == ["lifetime"]
    async with Observer.open(state_dir) as seen:
        await seen.stop(run.id, grace=0)
    gone(marker)


async def test_a_stop_that_is_under_way_is_hastened(state_dir: Path, tmp_path: Path, marker: Marker) -> None:
    """Whose grace is longer than the run's own; whose doing it was stays as it was."""
    then = """
        async for event in sup.follow(run.id, kinds=["output"]):  # from now on it minds no TERM
            break
        stopping = asyncio.create_task(sup.stop(run.id, grace=500))
        while (await sup.inspect(run.id)).state.value != "stopping":
            await asyncio.sleep(0.01)
        report(run=run.id)
        await stay()
    """
    argv = ["sh", "-c", f"trap '' TERM; echo ready; sleep {marker} & sleep {marker}"]
    code = starting(argv, then).replace("grace=5)", "grace=0.1)")
    with HostScript(code, state_dir, tmp_path) as script:
        run = script.facts()["run"]
    assert stop_of(await ended(state_dir, run)) | {"control_id": ""} == {
        "reason": "stop", "grace": 500.0, "escalated": True, "control_id": ""
    }  # fmt: skip
    gone(marker)


async def test_a_host_that_cannot_be_seen(state_dir: Path) -> None:
    """Then nobody could tell when it ends: refused, and the id is not spent."""
    command = Command(argv=["true"])
    unseen = read_host(command)._replace(process=None)
    async with Supervisor.open(state_dir) as sup:
        async with refused(ErrorCode.INVALID_REQUEST) as caught:
            await sup.start(command, request_id="r-1", lifetime="scope", host=unseen)
        assert caught().details["field"] == "lifetime"
        run = await sup.start(command, request_id="r-1", host=unseen)
        assert (await sup.wait(run.id, timeout=PATIENCE)).state is RunState.FINISHED


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may make a pid namespace here")
async def test_hosts_in_other_pid_namespaces(state_dir: Path, tmp_path: Path, marker: Marker) -> None:
    """One below the service's own can be seen from there; one above it cannot."""
    asks = ASKS.format(argv=["sleep", str(marker)])
    with HostScript(SERVES, state_dir, tmp_path) as service:
        service.facts()
        with HostScript(asks, state_dir, tmp_path, prefix=NEW_PID_NAMESPACE) as client:
            run = client.facts()["run"]
            await still_running(state_dir, run)
        assert stop_of(await ended(state_dir, run))["reason"] == "host_gone"
    gone(marker)
    with HostScript(SERVES, state_dir, tmp_path, prefix=NEW_PID_NAMESPACE) as service:
        service.facts()
        async with AsyncClient.connect(state_dir) as guest, refused(ErrorCode.INVALID_REQUEST) as caught:
            await guest.start(Command(argv=["true"]), lifetime="scope")
        assert caught().details["field"] == "lifetime"


RAW = """
import socket
with socket.socket(socket.AF_UNIX) as raw:
    raw.connect(STATE + "/supervisor.sock")
    body = json.dumps(dict(command=dict(argv={argv!r}), lifetime="scope")).encode()
    head = "POST /v1/start HTTP/1.1\\r\\nHost: x\\r\\nContent-Type: application/json\\r\\n"
    raw.sendall((head + f"Content-Length: {{len(body)}}\\r\\n\\r\\n").encode() + body)
    report(status=raw.recv(4096).split()[1].decode())
"""


async def test_a_host_that_says_nothing_of_itself(state_dir: Path, tmp_path: Path, marker: Marker) -> None:
    """It still is who has connected, and never the service."""
    with HostScript(SERVES, state_dir, tmp_path) as service:
        service.facts()
        assert host(RAW.format(argv=["sleep", str(marker)]), state_dir, tmp_path) == {"status": "201"}
        async with Observer.open(state_dir) as seen:
            [run] = (await seen.list()).runs
        assert stop_of(await ended(state_dir, run.id))["reason"] == "host_gone"
        assert service.process.poll() is None
    gone(marker)
