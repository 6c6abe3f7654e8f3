"""What goes on to work without the host's network: programs that need none, a loopback, and a good no."""

from __future__ import annotations

import shutil
import signal
import sys
from pathlib import Path

import pytest

from durable_supervisor import Policy
from durable_supervisor.process.signals import signal_process
from tests.contract.runs import Marker, appear, gone
from tests.policy.confined import Confined
from tests.policy.listeners import HAS_IPV6
from tests.support import eventually, running

NONE, LOOPBACK = Policy(network="none"), Policy(network="loopback")

ASYNCIO = """
import asyncio, concurrent.futures, multiprocessing, sys

async def main():
    child = await asyncio.create_subprocess_exec("cat", stdin=-1, stdout=-1)
    out, _ = await child.communicate(b"by a pipe")
    print(out.decode(), await asyncio.to_thread(lambda: "by a thread"))
asyncio.run(main())
with multiprocessing.Pool(2) as pool:
    print(pool.map(abs, [-1, -2]))
"""

SERVER_AND_CLIENT = """
import asyncio, sys

async def answer(reader, writer):
    writer.write((await reader.read(100)).upper())
    await writer.drain()
    writer.close()

CLIENT = '''
import socket, sys
with socket.create_connection((sys.argv[1], int(sys.argv[2]))) as one:
    one.sendall(b"hello")
    print(sys.argv[1], one.recv(100).decode())
'''

async def main():
    for address in sys.argv[1:]:
        async with await asyncio.start_server(answer, address, 0) as server:
            port = server.sockets[0].getsockname()[1]
            client = await asyncio.create_subprocess_exec(sys.executable, "-c", CLIENT, address, str(port))
            await client.wait()
asyncio.run(main())
"""

RESOLVED = """
import os, socket
os.environ["RES_OPTIONS"] = "timeout:30 attempts:5"  # whoever waits for an answer outlasts its deadline
try:
    socket.getaddrinfo("name.example.org", 443)
except socket.gaierror:
    print("unknown")
print(sorted({row[4][0] for row in socket.getaddrinfo("localhost", 80)} & {"127.0.0.1"}))
"""


@pytest.mark.parametrize("policy", [NONE, LOOPBACK], ids=["none", "loopback"])
async def test_programs_that_need_no_network(confined: Confined, policy: Policy) -> None:
    ended = await confined([sys.executable, "-c", ASYNCIO], policy)
    assert ended.lines == ["by a pipe by a thread", "[1, 2]"], ended.stderr.decode()


async def test_node_starts(confined: Confined) -> None:
    """Its loop tries io_uring first, and its children are at the other end of socket pairs."""
    if shutil.which("node") is None:
        pytest.skip("no node here")
    script = """
const { execFileSync, fork } = require("child_process");
console.log(execFileSync("echo", ["by a child"]).toString().trim());
new (require("worker_threads").Worker)("console.log('by a thread')", { eval: true });
require("fs").promises.readFile("/etc/passwd").then((text) => console.log(text.length > 0));
"""
    ended = await confined(["node", "-e", script], NONE)
    assert sorted(ended.lines) == ["by a child", "by a thread", "true"], ended.stderr.decode()


async def test_a_server_and_its_client_over_a_loopback_of_their_own(confined: Confined) -> None:
    addresses = ["127.0.0.1", "127.0.0.53", *(["::1"] if HAS_IPV6 else [])]
    ended = await confined([sys.executable, "-c", SERVER_AND_CLIENT, *addresses], LOOPBACK)
    assert ended.lines == [f"{address} HELLO" for address in addresses], ended.stderr.decode()


async def test_two_runs_have_two_loopbacks(confined: Confined) -> None:
    """Both listen on one and the same port at the same time, and neither hears the other."""
    script = """
import socket, sys
server = socket.create_server(("127.0.0.1", 34567))
print("listening", flush=True)
sys.stdin.read()
server.settimeout(0)
try:
    server.accept()
except BlockingIOError:
    print("nobody")
"""
    runs = []
    for _ in range(2):
        run = await confined.start([sys.executable, "-c", script], LOOPBACK, stdin="open")
        await confined.runs.printed(run, b"listening\n")
        runs.append(run)
    for run in runs:
        await confined.runs.sup.write_stdin(run.id, b"", eof=True)
        assert (await confined.ended(run)).lines == ["listening", "nobody"]


@pytest.mark.parametrize("policy", [NONE, LOOPBACK], ids=["none", "loopback"])
async def test_names_are_not_found_at_once(confined: Confined, policy: Policy) -> None:
    ended = await confined([sys.executable, "-c", RESOLVED], policy, timeout=60)
    assert ended.lines == ["unknown", "['127.0.0.1']"], ended.stderr.decode()


async def test_what_is_of_others_is_stopped_as_ever(confined: Confined, marker: Marker) -> None:
    """Namespaces hide nobody from the worker: it ends daemons, and says how the leader ended."""
    script = f"setsid sleep {marker} & trap '' TERM; sleep {marker}; sleep {marker}"
    run = await confined.start(["sh", "-c", script], NONE, grace=0.2)
    appear(marker, 3)  # the shell has it in its script
    await confined.runs.sup.stop(run.id)
    ended = await confined.ended(run)
    assert ended.view.receipt is not None
    assert (ended.outcome, ended.view.receipt["survivors"]) == ("cancelled", [])
    assert ended.view.receipt["exit"] == {"code": None, "signal": signal.SIGKILL}
    gone(marker)


async def test_without_its_worker_the_network_stays_empty(confined: Confined, tmp_path: Path) -> None:
    """What confines is on the program, not in whoever started it."""
    script = """
import os, socket, sys, time
go, said = sys.argv[1:]
print("here", flush=True)
while not os.path.exists(go):
    time.sleep(0.02)
with open(said + ".new", "w") as file:
    for what in socket.AF_UNIX, socket.AF_INET:
        try:
            socket.socket(what).connect(("192.0.2.1", 80) if what == socket.AF_INET else "/run/any.sock")
        except OSError as error:
            print(error.strerror, file=file)
os.rename(said + ".new", said)
"""
    go, said = tmp_path / "go", tmp_path / "said"
    run = await confined.start([sys.executable, "-I", "-S", "-c", script, str(go), str(said)], NONE)
    await confined.runs.printed(run, b"here\n")
    worker = await confined.runs.worker(run.id)
    assert signal_process(worker, signal.SIGKILL)
    eventually(lambda: not running(worker.pid))
    go.touch()
    eventually(said.exists)
    assert said.read_text().splitlines() == ["Permission denied", "Network is unreachable"]


async def test_the_mounts_of_the_host_are_left_alone(confined: Confined) -> None:
    """Control groups are read-only in there, and only there."""
    before = Path("/proc/self/mountinfo").read_text()
    script = """
for file in $(grep ' - cgroup2\\? ' /proc/self/mountinfo | cut -d ' ' -f 5); do
    cat $file/cgroup.procs > /dev/null || echo unreadable
    echo 0 2>/dev/null > $file/cgroup.procs || echo refused
    mkdir $file/hostile 2>/dev/null || echo refused
done
"""
    ended = await confined(["bash", "-c", script], NONE, max_processes=50)
    assert ended.lines.count("refused") == 2 * before.count(" - cgroup")
    assert Path("/proc/self/mountinfo").read_text() == before
