"""Who follows for a reader leaves with him, also where nothing more comes to be written."""

from __future__ import annotations

import signal
import subprocess

import pytest

from tests.cli.helpers import Cli
from tests.support import eventually

QUIET = ("--", "sh", "-c", "echo ready; exec sleep 3131")


def left_alone(process: subprocess.Popen[bytes]) -> int:
    """Its exit code, once its reader has gone after the first line."""
    assert process.stdout is not None
    assert process.stdout.readline()
    process.stdout.close()
    return process.wait(timeout=60)


@pytest.mark.parametrize(
    "words", [["logs", "-f"], ["events", "-f"], ["events", "-f", "--json"], ["attach"], ["attach", "--json"]]
)
def test_a_follower(cli: Cli, words: list[str]) -> None:
    run_id = cli.start(*QUIET)
    assert left_alone(cli.popen(*words, run_id, stdout=subprocess.PIPE)) == 141
    assert cli.inspect(run_id)["state"] == "running"
    cli.ok("stop", run_id)


@pytest.mark.parametrize("options", [(), ("--json",)], ids=["shown", "as JSON"])
def test_a_replay_between_two_lines(cli: Cli, options: tuple[str, ...]) -> None:
    run_id = cli.ok("run", "--json", "--", "sh", "-c", "echo ready; sleep 0.2; echo on").document["run_id"]
    slowly = ("replay", "--speed", "0.001", "--quiet", *options, run_id)
    assert left_alone(cli.popen(*slowly, stdout=subprocess.PIPE)) == 141


def test_the_feed(cli: Cli) -> None:
    cli("wait", cli.start("--", "true"))
    cli.ok("reconcile")
    assert left_alone(cli.popen("feed", "-f", stdout=subprocess.PIPE)) == 141


def test_a_run_of_this_commands_lifetime(cli: Cli) -> None:
    process = cli.popen("run", "--lifetime", "scope", *QUIET, stdout=subprocess.PIPE)
    assert left_alone(process) == 141
    [run] = cli.ok("list", "--json").document["runs"]
    assert cli("wait", run["run_id"]).code == 143


def test_any_other_run_leaves_when_it_has_something_to_say(cli: Cli) -> None:
    """As a program that nobody reads: its exit code is not lost before."""
    process = cli.popen("run", "--", "sh", "-c", "echo ready; read line; exit 3", stdout=subprocess.PIPE)
    assert left_alone(process) == 3


def test_one_that_is_over_is_said_to_be(cli: Cli) -> None:
    process = cli.popen(
        "run", "--", "sh", "-c", "seq 100000; exit 4", stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.readline() == b"1\n"
    [run] = cli.ok("list", "--json").document["runs"]
    eventually(lambda: cli.inspect(run["run_id"])["state"] == "finished")
    process.stdout.close()
    with process.stderr as errors:
        assert f"run {run['run_id']} is over: exited 4" in errors.read().decode()
    assert process.wait(timeout=60) == 141


def test_ctrl_c_of_a_follower_is_still_that(cli: Cli) -> None:
    run_id = cli.start(*QUIET)
    process = cli.popen("logs", "-f", run_id, stdout=subprocess.PIPE)
    assert process.stdout is not None
    with process.stdout as output:
        assert output.readline() == b"ready\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == 130
    cli.ok("stop", run_id)
