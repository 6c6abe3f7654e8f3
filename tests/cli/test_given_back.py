"""A terminal is given back as it was, also by a command that a signal ends."""

from __future__ import annotations

import signal

import pexpect
import pytest

from tests.cli.helpers import Cli
from tests.cli.terminals import Terminal
from tests.support import eventually


@pytest.mark.parametrize("signo", [signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM])
def test_by_a_replay(cli: Cli, terminal: Terminal, signo: signal.Signals) -> None:
    done = cli("run", "--json", "--", "sh", "-c", "echo first; sleep 0.2; echo second")
    child = terminal("replay", done.document["run_id"], "--speed", "0.001")
    child.expect("first")
    eventually(lambda: not child.getecho())
    child.kill(signo)
    child.expect(pexpect.EOF)
    assert child.getecho()
    child.wait()
    assert child.signalstatus == signo


@pytest.mark.parametrize("signo", [signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM])
def test_by_an_attachment(cli: Cli, terminal: Terminal, signo: signal.Signals) -> None:
    run_id = cli("start", "--json", "--pty", "--", "sh", "-c", "echo first; sleep 3131").document["run_id"]
    child = terminal("attach", run_id)
    child.expect("first")
    eventually(lambda: not child.getecho())
    child.kill(signo)
    child.expect(pexpect.EOF)
    assert child.getecho()
    cli.ok("stop", "--grace", "0", run_id)
