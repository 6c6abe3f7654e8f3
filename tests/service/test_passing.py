"""While a service with limits is away, others own its directory for a moment: its queue is left to it."""

from __future__ import annotations

import signal
from pathlib import Path

from tests.cli.helpers import Cli
from tests.contract.lines import Yard
from tests.service.conftest import Serve
from tests.service.daemons import Service, until
from tests.support import PATIENCE

ONE = ("--max-concurrent-runs", "1")


def ask(service: Service, yard: Yard, name: str, priority: int = 0) -> str:
    """A run that signs in, and stays until it is released."""
    argv = yard.holder(name).argv
    return service.start(*argv, request_id=name, queue=True, priority=priority)


def start(cli: Cli, yard: Yard, name: str, *words: str) -> str:
    """The same from the command line, which owns the directory where nobody else does."""
    done = cli("start", "--json", "--cwd", "/", "--request-id", name, *words, "--", *yard.holder(name).argv)
    assert done.code == 0, done.stderr
    return str(done.document["state"])


def test_nobody_is_let_go_by_who_only_passes(serve: Serve, state_dir: Path, tmp_path: Path) -> None:
    yard, cli = Yard(tmp_path), Cli(state_dir)
    first = serve(*ONE)
    runs = [
        ask(first, yard, "one"),
        ask(first, yard, "two"),
        ask(first, yard, "three"),
        ask(first, yard, "four", 5),
    ]
    until(lambda: yard.signed_in() == ["one"], "the first runs")
    first.end(signal.SIGKILL)

    assert start(cli, yard, "five", "--queue") == "queued"
    assert start(cli, yard, "two", "--queue") == "queued"  # known already
    yard.release("one")
    assert cli("wait", runs[0]).code == 0
    assert cli("reconcile").code == 0
    assert cli("stop", runs[2]).code == 0
    states = {run["request_id"]: run["state"] for run in cli("list", "--json").document["runs"]}
    assert states == {
        "one": "finished",
        "two": "queued",
        "three": "not_started",
        "four": "queued",
        "five": "queued",
    }
    assert yard.signed_in() == ["one"], "with a slot that is free, too"

    second = serve(*ONE)
    signed = ["one"]
    for name in ("four", "two", "five"):
        signed.append(name)
        until(lambda: len(yard.signed_in()) == len(signed), f"{name} runs")
        assert second.ask("GET", "/v1/info")[1]["runs"]["held"] == 1
        assert yard.signed_in() == signed, "one at a time, in order"
        yard.release(name)
    until(lambda: second.ask("GET", "/v1/info")[1]["runs"] == {"held": 0, "queued": 0}, "all are over")
    assert yard.signed_in() == signed


def test_who_was_let_go_and_never_told_is_told_by_whoever_comes(
    serve: Serve, state_dir: Path, tmp_path: Path
) -> None:
    yard, cli = Yard(tmp_path), Cli(state_dir)
    first = serve(*ONE, DURABLE_SUPERVISOR_FAILPOINTS="queue.marked=kill")
    for name in ("one", "two", "three"):
        ask(first, yard, name)
    yard.release("one")
    first.process.wait(PATIENCE)
    assert cli("reconcile").code == 0
    until(lambda: yard.signed_in() == ["one", "two"], "its slot was its own already")
    second = serve(*ONE)
    assert second.ask("GET", "/v1/info")[1]["runs"] == {"held": 1, "queued": 1}
    yard.release("two")
    until(lambda: yard.signed_in() == ["one", "two", "three"], "the last runs")
    yard.release("three")
    until(lambda: second.ask("GET", "/v1/info")[1]["runs"]["held"] == 0, "all are over")
