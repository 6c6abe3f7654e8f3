"""A person at a terminal, through a service."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.attach.programs import shell
from tests.attach.test_terminal import DETACH, sit_down
from tests.cli.helpers import Cli
from tests.cli.terminals import Terminal, finish
from tests.service.daemons import ROOT_LEAVE


@contextmanager
def daemon(cli: Cli, socket: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Serving at ``socket`` until the block ends."""
    words = ("serve", "--json", *ROOT_LEAVE, "--socket", str(socket))
    with cli.popen(*words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline()  # it is ready
            yield process
        finally:
            process.kill()


@pytest.fixture
def socket(tmp_path: Path) -> Path:
    return tmp_path / "service.sock"


def test_the_same_over_a_socket_and_over_its_restart(cli: Cli, terminal: Terminal, socket: Path) -> None:
    run = shell(cli.state_dir)
    at = ("--socket", str(socket))
    with ExitStack() as later:
        with daemon(cli, socket):
            child = sit_down(terminal, run, *at)
            child.send("echo one$((1)); stty size\r")
            child.expect("one1\r\n40 120")
            other = sit_down(terminal, run, *at, watching=True)
        later.enter_context(daemon(cli, socket))
        child.send("echo two$((2))\r")  # sent once the service is back, and the input ours again
        for one in (child, other):
            one.expect("two2")
        thief = sit_down(terminal, run, "--steal")  # beside the service, and heard through it
        child.expect("another terminal has taken over the input")
        thief.send(DETACH)
        assert finish(thief)[1] == 0
        other.send(DETACH)
        assert "the run goes on" in finish(other)[0]
        child.send("\x03")
        assert finish(child)[1] == 0
