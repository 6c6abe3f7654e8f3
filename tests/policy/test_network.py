"""Nothing of the host's network is reached from a run without one, by any known way."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from durable_supervisor import Grant, Policy
from durable_supervisor.sandbox.report import MEMORY_OPEN
from tests.contract.hosts import ROOT
from tests.policy import nested
from tests.policy.confined import Confined, Ended, attempts, done
from tests.policy.conftest import Hostile
from tests.policy.listeners import Listeners, listening
from tests.support import eventually

NONE = Policy(network="none", enforcement={"network": "required"})
LOOPBACK = Policy(network="loopback", enforcement={"network": "required"})
# A pair of connected sockets is a pipe.  In a network of its own a datagram goes where nobody is.
HARMLESS = {"none": {"pair"}, "loopback": {"pair", "udp4"}}


@pytest.fixture
def host() -> Iterator[Listeners]:
    with listening() as listeners:
        yield listeners


def check_report(ended: Ended, mode: str) -> None:
    assert ended.enforcement["network"] == {
        "requested": mode,
        "applied": "full",
        "mechanism": "namespace",
        "reason": None,
    }


async def test_without_a_policy_everybody_is_reached(
    confined: Confined, hostile: Hostile, host: Listeners
) -> None:
    """The hostile program is good at it: what it does not do elsewhere, it was kept from."""
    ended = await confined([hostile("network"), *host.arguments])
    assert ended.exit_code == 0, ended.stderr
    assert set(host.sockets) | {"pair_datagram", "pair_datagram_sent", "pair_raw", "netlink_generic"} <= done(
        ended.lines
    )
    eventually(lambda: host.reached() == set(host.sockets))  # the kernel may be a moment late, too
    assert ended.enforcement["network"]["requested"] is None


@pytest.mark.parametrize("how", [[], ["daemon"]], ids=["plainly", "as a daemon"])
@pytest.mark.parametrize("policy", [NONE, LOOPBACK], ids=["none", "loopback"])
async def test_nobody_is_reached(
    confined: Confined, hostile: Hostile, host: Listeners, policy: Policy, how: list[str]
) -> None:
    ended = await confined([hostile("network"), *how, *host.arguments], policy)
    assert ended.exit_code == 0, ended.stderr
    assert done(ended.lines) == HARMLESS[policy.network], ended.lines
    assert len(ended.lines) > 30
    assert host.reached() == set()
    check_report(ended, policy.network)


@pytest.mark.parametrize("backend", ["landlock", "bubblewrap"])
async def test_nor_with_the_files_confined_as_well(
    confined: Confined, hostile: Hostile, host: Listeners, backend: Any
) -> None:
    program = hostile("network")
    folder = str(Path(program).parent)
    policy = Policy(network="none", filesystem=[Grant(folder, "execute")], files_backend=backend)
    ended = await confined([program, *host.arguments], policy, cwd=folder)
    if ended.enforcement["files"]["mechanism"] is None:
        pytest.skip(f"no {backend} here")
    assert done(ended.lines) <= {"pair", "udp4"}, ended.lines  # bwrap brings its loopback up
    assert len(ended.lines) > 30, ended.stderr
    assert host.reached() == set()
    check_report(ended, "none")


@pytest.mark.parametrize("how", [[], ["daemon"]], ids=["plainly", "as a daemon"])
async def test_nor_by_io_uring(confined: Confined, hostile: Hostile, host: Listeners, how: list[str]) -> None:
    argv = [hostile("uring"), *how, host.port("tcp4")]
    free = await confined(argv)
    if attempts(free.lines).get("setup") == "done":
        eventually(lambda: host.reached() == {"tcp4"}, message=str(free.lines))
        host.sockets["tcp4"].accept()[0].close()
    ended = await confined(argv, NONE)
    assert attempts(ended.lines) == dict.fromkeys(("setup", "enter", "register"), "ENOSYS")
    assert host.reached() == set()


async def test_nor_from_python(confined: Confined, host: Listeners) -> None:
    script = f"""
import socket, multiprocessing.connection as connections
def tried(what, *arguments):
    try:
        what(*arguments)
    except OSError as error:
        print(type(error).__name__)
    else:
        print("done")
tried(socket.create_connection, ("127.0.0.1", {host.port("tcp4")}))
tried(socket.create_connection, ("localhost", {host.port("tcp4")}))
tried(connections.Client, {host.stream_path!r})
tried(socket.create_server, ("0.0.0.0", 0))
"""
    ended = await confined([sys.executable, "-I", "-c", script], NONE)
    # Who listens in an empty network listens to nobody.
    assert ended.lines == ["OSError", "OSError", "PermissionError", "done"], ended.stderr
    assert host.reached() == set()


async def test_a_run_cannot_start_an_unconfined_one(confined: Confined, state_dir: Path) -> None:
    """The sockets of its own worker, and of every other, take controls from anyone of the user."""
    other = await confined.start(["sleep", "60"])
    await confined.runs.event(other, "program.released")
    script = """
import socket, sys
for path in sys.argv[1:]:
    try:
        socket.socket(socket.AF_UNIX).connect(path)
    except PermissionError:
        print("refused")
"""
    run = await confined.start(["sleep", "60"], NONE)
    await confined.runs.event(run, "program.released")
    sockets = [str(path) for path in state_dir.rglob("*") if path.is_socket()]
    ended = await confined([sys.executable, "-I", "-S", "-c", script, *sockets, "/run/any.sock"], NONE)
    assert ended.lines == ["refused"] * (len(sockets) + 1)
    for one in (run, other):
        await confined.runs.sup.stop(one.id)


async def test_where_no_namespace_can_be_made(
    confined: Confined, hostile: Hostile, host: Listeners, tmp_path: Path
) -> None:
    """Then there is no socket at all; a loopback cannot be had, and that is said."""
    argv = [str(tmp_path / "nested"), hostile("network"), *host.arguments]
    env = {"PYTHONPATH": f"{ROOT}/src:{ROOT}"}
    ended = await confined([sys.executable, nested.__file__, *argv], Policy(), env=env)
    assert ended.exit_code == 0, ended.stderr.decode()
    none, loopback, refused = json.loads(ended.stdout)
    if none.get("details", {}).get("reason") == MEMORY_OPEN:
        pytest.skip("no Landlock here either: it could have somebody else make a socket, and is refused")

    report = none["enforcement"]["network"]
    assert (report["applied"], report["mechanism"]) == ("full", "seccomp")
    results = attempts(none["stdout"].splitlines())
    assert done(none["stdout"].splitlines()) == {"pair"}, results
    assert {results[name] for name in ("tcp4", "udp4", "unix_stream", "lo_ioctl", "raw4")} == {"EACCES"}

    report = loopback["enforcement"]["network"]
    assert (report["requested"], report["applied"], report["mechanism"]) == ("loopback", "none", None)
    assert "namespace" in report["reason"]
    eventually(lambda: host.reached() == set(host.sockets))  # as the report says

    assert (refused["code"], refused["details"]["axis"]) == ("ENFORCEMENT_REFUSED", "network")
    assert refused["runs"] == 2  # those before: nothing was written of this
