"""A person at a terminal: pexpect plays the person, the kernel the terminal."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import termios
from pathlib import Path
from typing import Any

import pexpect
import pytest

from tests.attach.programs import PROMPT, PTY, shell, started
from tests.cli.helpers import COMMAND, Cli, environment
from tests.cli.terminals import Terminal, finish
from tests.contract.runs import state_of
from tests.support import eventually

DETACH = "\x1dd"


def modes(child: pexpect.spawn[str]) -> list[Any]:
    """The terminal's settings, as ``stty -a`` has them."""
    return termios.tcgetattr(child.child_fd)


def sit_down(terminal: Terminal, *words: str, watching: bool = False) -> pexpect.spawn[str]:
    """Attach, and wait until the past is shown and, for a second one, who has the input."""
    child = terminal("attach", *words)
    child.expect("detaches")
    wanted = [PROMPT, "another terminal has the input"] if watching else [PROMPT]
    while wanted:
        del wanted[child.expect(wanted)]
    return child


def test_type_see_the_echo_leave_and_come_back(cli: Cli, terminal: Terminal) -> None:
    run = shell(cli.state_dir)
    child = sit_down(terminal, run)
    child.send("echo sum=$((40+2))\r")
    child.expect("sum=42\r\n" + PROMPT)
    child.send("\x1dxcat -v\r")  # half of the keys that leave is passed on, as is a doubled one
    child.send("\x1d\x1d\r")
    child.expect(r"\^\]\r\n")
    child.send("\x03")  # the program's, not ours
    child.expect(PROMPT)
    child.send("echo last$((1))\r" + DETACH)  # in one go: what comes before still arrives
    child.expect("the run goes on")
    assert finish(child)[1] == 0
    assert cli.inspect(run)["state"] == "running"

    child = terminal("attach", run)
    child.expect("sum=42")
    child.expect("last1")
    child.expect(PROMPT)
    child.send("exit 3\r")
    child.expect("exited 3")
    assert finish(child)[1] == 0
    receipts = [
        event["detail"]
        for event in cli.ok("events", "--json", run).documents
        if event["kind"] == "control.applied"
    ]
    assert {(one["op"], one["result"]) for one in receipts} >= {("stdin", "written"), ("lease", "granted")}


def test_the_program_has_the_size_of_the_terminal(cli: Cli, terminal: Terminal) -> None:
    run = shell(cli.state_dir)
    child = sit_down(terminal, run)
    child.send("stty size\r")
    child.expect("40 120")
    child.setwinsize(33, 101)
    child.send("until stty size | grep 101; do sleep 0.02; done\r")
    child.expect("33 101\r\n")


def test_two_viewers_one_writer(cli: Cli, terminal: Terminal) -> None:
    run = shell(cli.state_dir)
    first = sit_down(terminal, run)
    first.send("echo first$((1))\r")
    first.expect("first1")
    second = sit_down(terminal, run, watching=True)
    second.send("echo never$((1))\r")
    first.send("echo both$((1))\r")
    for child in (first, second):
        child.expect("both1")
    thief = sit_down(terminal, "--steal", run)
    first.expect("another terminal has taken over the input")
    first.send("echo never$((2))\r")
    thief.send("echo mine$((1))\r")
    for child in (first, second, thief):
        child.expect("mine1")
    first.send("\x03")  # nothing takes it any more, so it leaves
    assert "the run goes on" in finish(first)[0]
    thief.send(DETACH)
    assert finish(thief)[1] == 0
    again = sit_down(terminal, run)
    again.send("echo free$((1))\r")
    second.expect("free1")
    printed = cli.ok("logs", run).stdout
    assert "never1" not in printed
    assert "never2" not in printed


@pytest.mark.parametrize("signo", [signal.SIGKILL, signal.SIGHUP])
def test_a_terminal_that_goes_away_frees_the_input(cli: Cli, terminal: Terminal, signo: int) -> None:
    run = shell(cli.state_dir)
    first = sit_down(terminal, run)
    os.kill(first.pid, signo)
    text, code = finish(first)
    assert "Traceback" not in text
    assert code == (0 if signo == signal.SIGHUP else None)
    second = sit_down(terminal, run)
    second.send("echo still$((1))\r")
    second.expect("still1")


def test_the_terminal_is_given_back_as_it_was(cli: Cli, terminal: Terminal) -> None:
    run = started(
        cli.state_dir, "sh", "-c", r"printf '\033[?1049h\033[?25l\033[?2004hfull'; read line", pty=PTY
    )
    untouched = terminal("--version")
    before = modes(untouched)  # of the command in question they may be others already when one looks
    finish(untouched)

    def attached(*words: str) -> pexpect.spawn[str]:
        child = terminal("attach", *words, run)
        child.expect("full")
        assert not modes(child)[3] & (termios.ICANON | termios.ECHO | termios.ISIG)
        return child

    child = attached()
    child.send(DETACH)
    child.expect("the run goes on")
    screen = child.before or ""
    for mode in ("\x1b[?1049l", "\x1b[?25h", "\x1b[?2004l"):
        assert mode in screen
    assert modes(child) == before

    child = attached()
    os.kill(child.pid, signal.SIGTERM)
    eventually(lambda: modes(child) == before)
    assert finish(child)[1] == 143

    child = attached()
    os.kill(child.pid, signal.SIGTSTP)
    eventually(
        lambda: state_of(child.pid) == "T"
    )  # one that is continued before it has stopped stops for good
    assert modes(child) == before
    os.kill(child.pid, signal.SIGCONT)
    eventually(lambda: not modes(child)[3] & termios.ICANON)
    child.send("\r")
    child.expect("exited 0")
    eventually(lambda: modes(child) == before)
    assert finish(child)[1] == 0


def test_a_viewer_only_sees(cli: Cli, terminal: Terminal) -> None:
    run = shell(cli.state_dir)
    viewer = sit_down(terminal, "--read-only", run)
    viewer.send("echo never$((1))\r")
    writer = sit_down(terminal, run)
    writer.send("echo seen$((1))\r")
    viewer.expect("seen1")
    viewer.send(DETACH)
    assert finish(viewer)[1] == 0
    assert "never1" not in cli.ok("logs", run).stdout


def test_lines_and_the_end_of_input_for_a_program_with_a_pipe(cli: Cli, terminal: Terminal) -> None:
    run = started(cli.state_dir, "sh", "-c", 'while read l; do echo "<$l>"; done; exit 4', stdin="open")
    child = terminal("attach", run)
    child.expect("program.released")
    assert modes(child)[3] & termios.ICANON
    cli.ok("write-stdin", run, stdin=b"from elsewhere\n")  # watching keeps nobody from writing
    child.expect("<from elsewhere>")
    child.sendline("typed here")
    child.expect("<typed here>")
    assert cli("write-stdin", run, stdin=b"x\n").stderr.startswith("error: WRITER_BUSY")
    child.sendeof()
    child.expect("exited 4")
    assert finish(child)[1] == 0


def test_what_is_typed_in_one_go_arrives_before_its_end(cli: Cli, terminal: Terminal) -> None:
    run = started(cli.state_dir, "cat", stdin="open")
    child = terminal("attach", run)
    child.expect("program.released")
    child.send("".join(f"line {number}\n" for number in range(20)) + "\x04")
    child.expect("exited 0")
    assert finish(child)[1] == 0
    assert cli.ok("logs", run).stdout.splitlines() == [f"line {number}" for number in range(20)]


def test_a_run_that_is_over_is_replayed(cli: Cli, terminal: Terminal) -> None:
    script = r"printf '\033[31mred\033[6n\033[c\033]11;?\007 then\n'; exit 2"
    run = started(cli.state_dir, "sh", "-c", script, pty=PTY, over=True)
    text, code = finish(terminal("attach", run))
    assert code == 0
    assert "\x1b[31mred then" in text  # a terminal would answer the questions, and we would type that
    assert "exited 2" in text


def test_run_with_a_terminal_is_like_typing_the_command(cli: Cli, terminal: Terminal) -> None:
    child = terminal("run", "--pty", "--", "sh", "-c", "stty size; read line; echo got $line; exit 5")
    child.expect("40 120")
    child.send("hello\r")
    child.expect("got hello")
    assert finish(child)[1] == 5


def test_tail_begins_with_the_last_lines(cli: Cli, terminal: Terminal) -> None:
    run = started(cli.state_dir, "seq", "500", pty=PTY, over=True)
    text, code = finish(terminal("attach", "--tail", "2", run))
    assert code == 0
    assert "499\r\n500\r\n" in text
    assert "498\r\n" not in text  # the id of the run may have these figures


def test_words_that_make_no_sense_together(cli: Cli) -> None:
    for words in (["--tail", "1", "--after", "2"], ["--detach-key", "meta-x"]):
        result = cli("attach", *words, "4f7k")
        assert (result.code, result.stderr.startswith("error: INVALID_REQUEST")) == (2, True)


@pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")
def test_in_tmux_a_program_leaves_the_screen_as_it_found_it(cli: Cli, tmp_path: Path) -> None:
    """Nothing here but a terminal emulator of somebody else's."""
    script = r"printf '\033[?1049h\033[Hfull screen'; read l; echo $l; read l"
    run = started(cli.state_dir, "sh", "-c", script, pty=PTY)
    env = {**environment(cli.state_dir), "TMUX_TMPDIR": str(tmp_path)}

    def tmux(*words: str) -> str:
        done = subprocess.run(["tmux", *words], env=env, capture_output=True, text=True, check=True)
        return done.stdout

    def shown(text: str) -> bool:
        return text in tmux("capture-pane", "-p")

    tmux("-f", "/dev/null", "new-session", "-d", "-x", "100", "-y", "30", "env", "PS1=outside> ", "sh")
    try:
        tmux("send-keys", f"echo shell-$((1)); {shlex.join([*COMMAND, 'attach', run])}", "Enter")
        eventually(lambda: shown("full screen") and not shown("shell-1"))
        tmux("send-keys", "typed in tmux", "Enter")
        eventually(lambda: shown("typed in tmux"))
        tmux("send-keys", "C-]", "d")
        eventually(lambda: shown("the run goes on") and shown("shell-1"))
        assert not shown("full screen")
    finally:
        tmux("kill-server")
    assert "typed in tmux" in cli.ok("logs", run).stdout
