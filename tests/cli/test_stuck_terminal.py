"""A terminal that stands still (Ctrl-S, a lost connection) takes no words; Ctrl-C works all the same."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator

import pytest

from tests.cli.helpers import Cli
from tests.support import eventually


@pytest.fixture
def stuck_terminal() -> Iterator[int]:
    """Of which nobody reads what is printed."""
    ours, theirs = os.openpty()
    yield theirs
    for fd in (theirs, ours):
        os.close(fd)


def test_ctrl_c_stops_the_program_and_then_leaves(cli: Cli, stuck_terminal: int) -> None:
    command = cli.popen("run", "--", "yes", stdout=stuck_terminal, stderr=stuck_terminal)
    try:
        run = eventually(lambda: _only_run(cli))
        assert run is not None
        eventually(lambda: int(cli.inspect(run)["head"]) > 100)
        command.send_signal(signal.SIGINT)
        eventually(lambda: cli.inspect(run)["state"] == "finished")
        assert command.poll() is None, "it has more to show than the terminal takes"
        eventually(lambda: _pressed_until_it_left(command))
        assert command.returncode == 130
    finally:
        command.kill()
        command.wait()


def _pressed_until_it_left(command: subprocess.Popen[bytes]) -> bool:
    if command.poll() is None:
        command.send_signal(signal.SIGINT)
    return command.poll() is not None


def _only_run(cli: Cli) -> str | None:
    listed = cli("list", "--json")
    runs = listed.document["runs"] if listed.code == 0 else []
    return str(runs[0]["run_id"]) if runs else None
