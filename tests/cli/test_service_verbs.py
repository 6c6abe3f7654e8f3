"""The verbs beside an application that owns the directory and serves its socket, and over --socket."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.cli.helpers import COMMAND, Cli, Result, assert_one_error_line, environment
from tests.contract.hosts import HostScript
from tests.support import PATIENCE, eventually, reap_state_dir, running

APPLICATION = """
import durable_supervisor
async with durable_supervisor.open(STATE, max_concurrent_runs=LIMIT) as host:
    report(role=host.role, pid=os.getpid())
    await asyncio.Event().wait()
"""


@contextmanager
def owning(state_dir: Path, folder: Path) -> Iterator[HostScript]:
    with HostScript(APPLICATION, state_dir, folder, before="LIMIT = None") as host:
        assert host.facts()["role"] == "owner"
        yield host


@pytest.fixture
def application(state_dir: Path, tmp_path: Path) -> Iterator[HostScript]:
    """Owns the directory of this test; it may be killed."""
    with owning(state_dir, tmp_path) as host:
        yield host


@dataclass
class Served:
    """A directory, the command on it, and the application that owns it."""

    cli: Cli
    wired: Cli
    pid: int


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """For all tests that leave the application alone: its start takes a second."""
    folder = tmp_path_factory.mktemp("served")
    state_dir = folder / "state"
    state_dir.mkdir(mode=0o700)
    with owning(state_dir, folder) as host:
        yield Served(Cli(state_dir), Wired(state_dir), host.process.pid)
    reap_state_dir(state_dir)


class Wired(Cli):
    """The command over the socket alone: its state directory does not exist."""

    def __call__(self, *words: str | bytes, stdin: bytes = b"", **env: str) -> Result:
        socket = str(self.state_dir / "supervisor.sock")
        given = {"DURABLE_SUPERVISOR_STATE_DIR": "/nonexistent/state", "DURABLE_SUPERVISOR_SOCKET": socket}
        return super().__call__(*words, stdin=stdin, **given, **env)


def test_everything_works_while_an_application_owns_the_directory(served: Served) -> None:
    cli = served.cli
    run_id = cli.start("--stdin", "open", "--", "sh", "-c", "read line; echo $line; exec sleep 300")
    assert cli.ok("list", "--json").document["runs"][0]["run_id"] == run_id
    cli.ok("write-stdin", run_id, stdin=b"hello\n")
    eventually(lambda: "hello" in cli.ok("logs", run_id).stdout)
    with cli.popen("attach", run_id, stdout=subprocess.PIPE) as attached:
        assert attached.stdout is not None
        assert attached.stdout.readline() == b"hello\n"
        assert cli.ok("stop", run_id, "--json").document["confirmed"] is True
        assert attached.wait(PATIENCE) == 0
    assert cli("wait", run_id).code == 143
    assert cli("run", "--", "sh", "-c", "echo in front; exit 3").code == 3
    assert cli.ok("reconcile", "--json").document["judged"] >= 0


def test_a_start_through_the_application_is_the_same_request(cli: Cli, application: HostScript) -> None:
    """As if it had been made without it: environment, directory and digests are the command's."""
    program = ("--inherit-env", "MINE", "--", "sh", "-c", "echo $MINE; pwd")
    words = ("start", "--json", "--request-id", "once", "--env", "A=1", *program)
    first = cli.ok(*words, MINE="from here").document
    cli("wait", first["run_id"])
    assert cli.ok("logs", first["run_id"]).stdout == f"from here\n{os.getcwd()}\n"
    another = ("start", "--json", "--request-id", "once", "--env", "A=2", *program)
    conflict = cli(*another)
    assert conflict.code == 4
    application.kill()  # its socket is left behind
    again = cli.ok(*words, MINE="from here").document
    assert (again["run_id"], again["admission"]) == (first["run_id"], "existing")
    assert cli(*another).error == conflict.error


def test_every_verb_says_the_same_over_the_socket(served: Served) -> None:
    cli, wired = served.cli, served.wired
    run_id = wired.start("--request-id", "said", "--", "sh", "-c", "echo out; echo err >&2; exit 3")
    assert wired("wait", run_id).code == cli("wait", run_id).code == 3
    for words in (
        ["list"], ["inspect", "--json", run_id[:8]],
        ["events", "--json", "--after", "2", "--limit", "3", run_id],
        ["events", "--follow", "--json", "--kind", "output", run_id], ["logs", "--tail", "1", run_id],
        ["attach", run_id], ["replay", "--speed", "1000", run_id], ["stop", "--json", run_id],
        ["feed", "--json", "--after", "1"],
    ):  # fmt: skip
        assert timeless(wired(*words)) == timeless(cli(*words)), words


def test_every_refusal_says_the_same_over_the_socket(served: Served) -> None:
    cli, wired = served.cli, served.wired
    over = wired.start("--request-id", "over", "--", "true")
    cli("wait", over)
    live = wired.start("--", "sleep", "300")
    for words in (
        ["inspect", "over"], ["stop", "nosuch"], ["signal", over, "TERM"], ["write-stdin", live],
        ["resolve", over, "--accept"], ["events", over, "--after", "1000"],
        ["wait", "--timeout", "0.01", live],
        ["start", "--request-id", "over", "--", "false"], ["start", "--", "/no/such/program"],
    ):  # fmt: skip
        one, other = wired("--json", *words), cli("--json", *words)
        assert one.code == other.code != 0, (words, one, other)
        assert shown(one.error) == shown(other.error), words
    assert wired.ok("signal", live, "KILL", "--json").document["result"] == "delivered"
    assert wired("wait", live).code == 137


def timeless(result: Result) -> tuple[int, str, str]:
    """Without what counts on: how long ago, and how wide that makes its column."""
    text = re.sub(r"[0-9.dhms]+ ago", "T ago", result.stdout)
    return result.code, re.sub(r" +", " ", text), result.stderr


def shown(error: dict[str, Any]) -> str:
    """An error without the ids of the runs that each call made."""
    return re.sub(r"\b[0-9a-z]{16}\b", "RUN", repr(error))


def test_over_the_socket_no_file_is_touched(served: Served) -> None:
    wired = served.wired
    run_id = wired.start("--stdin", "open", "--", "cat")
    wired.ok("write-stdin", run_id, stdin=b"x" * 200_000)
    wired.ok("write-stdin", run_id, "--eof")
    assert wired("wait", run_id).code == 0
    assert len(wired.ok("logs", run_id).stdout) == 200_000
    assert wired("run", "--", "sh", "-c", "exit 4").code == 4
    assert not Path("/nonexistent").exists()


def test_the_nearest_word_says_where(served: Served, tmp_path: Path) -> None:
    cli = served.cli
    nobody = str(tmp_path / "nobody.sock")
    refused = cli("list", "--socket", nobody)
    assert refused.code == 5
    assert_one_error_line(refused, "SERVICE_UNAVAILABLE")
    assert cli("start", "--socket", nobody, "--", "true").code == 5
    assert cli("list", DURABLE_SUPERVISOR_SOCKET=nobody).code == 5
    cli.ok("list", "--state-dir", str(cli.state_dir), DURABLE_SUPERVISOR_SOCKET=nobody)
    cli.ok("list", "--socket", str(cli.state_dir / "supervisor.sock"), DURABLE_SUPERVISOR_SOCKET=nobody)


def test_recover_wants_the_directory_to_itself(served: Served) -> None:
    cli = served.cli
    refused = cli("recover", "--json")
    assert (refused.code, refused.error["code"]) == (5, "STATE_DIR_IN_USE")
    assert refused.error["details"]["pid"] == served.pid
    assert cli("recover", "--socket", str(cli.state_dir / "supervisor.sock")).code == 2


def test_a_place_in_the_queue(cli: Cli, state_dir: Path, tmp_path: Path) -> None:
    with HostScript(APPLICATION, state_dir, tmp_path, before="LIMIT = 1") as host:
        host.facts()
        first = cli.start("--stdin", "open", "--", "cat")
        full = cli("start", "--json", "--", "true")
        assert (full.code, full.error["code"]) == (5, "CAPACITY_EXHAUSTED")
        waits = cli.ok("start", "--queue", "--json", "--", "true").document
        assert waits["state"] == "queued"
        given_up = cli.start("--queue", "--priority", "5", "--", "true")
        assert cli.ok("stop", given_up, "--json").document["state"] == "not_started"
        cli.ok("write-stdin", first, "--eof")
        assert cli("wait", waits["run_id"]).code == 0


def test_a_service_that_dies_in_the_middle_costs_no_start(cli: Cli, application: HostScript) -> None:
    """Stopped, it takes the connection and never answers; killed then, the start goes on without it."""
    os.kill(application.process.pid, 19)
    with cli.popen(
        "start", "--json", "--request-id", "through", "--", "true", stdout=subprocess.PIPE
    ) as starting:
        eventually(lambda: connected_to(starting.pid))
        application.kill()
        assert starting.wait(PATIENCE) == 0
    assert cli.ok("list", "--json").document["runs"][0]["request_id"] == "through"
    assert not running(application.process.pid)


def connected_to(pid: int) -> bool:
    """Has it a connection already?"""
    folder = Path(f"/proc/{pid}/fd")
    try:
        names = [os.readlink(one) for one in folder.iterdir()]
    except FileNotFoundError:  # one was just closed: the caller looks again
        return False
    return sum(name.startswith("socket:") for name in names) > 2  # besides the loop's own pair


def test_a_start_through_a_service_loads_nothing_of_the_owners(served: Served) -> None:
    words = [sys.executable, "-X", "importtime", *COMMAND[1:], "start", "--", "true"]
    done = subprocess.run(
        words, env=environment(served.cli.state_dir), capture_output=True, text=True, check=True
    )
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "durable_supervisor.client.aio" in loaded
    heavy = {"aiohttp", "platformdirs", "psutil", "pydantic", "sqlite3", "structlog"}
    assert not heavy & loaded
    assert not [name for name in loaded if name.startswith("durable_supervisor.supervisor")]
