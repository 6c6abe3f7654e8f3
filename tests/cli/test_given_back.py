"""A terminal is given back as it was, also by a command that a signal ends."""

from __future__ import annotations

import signal

import pexpect
import pytest

from tests.cli.helpers import COMMAND, Cli, environment
from tests.cli.terminals import Terminal
from tests.support import PATIENCE, eventually


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


JOB = 'set -m; "$@" --speed 0.001; echo "status $?"; stty -a; fg'  # a shell with job control


def test_by_a_replay_that_ctrl_z_stops(cli: Cli) -> None:
    done = cli("run", "--json", "--", "sh", "-c", "echo first; sleep 0.2; echo second")
    words = ["-c", JOB, "sh", *COMMAND, "replay", done.document["run_id"]]
    shell = pexpect.spawn(
        "/bin/sh", words, env=environment(cli.state_dir), encoding="utf-8", timeout=PATIENCE
    )
    try:
        shell.expect("first")
        eventually(lambda: not shell.getecho())
        shell.send("\x1a")
        shell.expect("status 148")  # 128 and SIGTSTP
        shell.expect(r"\secho\s")
        eventually(lambda: not shell.getecho())
        shell.send("q")
        shell.expect(pexpect.EOF)
        assert shell.getecho()
    finally:
        shell.close(force=True)


def test_ctrl_z_stops_nobody_whom_no_shell_could_continue(cli: Cli, terminal: Terminal) -> None:
    """As the kernel has it of every program: its process group is orphaned."""
    done = cli("run", "--json", "--", "sh", "-c", "echo first; sleep 0.2; echo second")
    child = terminal("replay", done.document["run_id"], "--speed", "0.001")
    child.expect("first")
    eventually(lambda: not child.getecho())
    child.send("\x1a")
    child.send(" ")
    child.expect("paused")
    child.send("q")
    child.expect(pexpect.EOF)
    assert child.getecho()


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
