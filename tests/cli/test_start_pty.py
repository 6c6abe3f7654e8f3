"""--pty, --size, --term: which terminal is asked for, and that the program gets it."""

from __future__ import annotations

import json

import pytest

from durable_supervisor.wire.documents import validate
from tests.cli.helpers import Cli
from tests.cli.terminals import Terminal, finish

LOOK = ("--", "sh", "-c", "stty size; echo $TERM")


def asked(cli: Cli, *words: str) -> object:
    form = cli.ok("start", "--dry-run", "--json", *words, "--", "true", TERM="screen").document
    validate("start-request", form)
    return form["pty"]


def test_without_a_terminal_of_our_own_it_is_a_usual_one(cli: Cli) -> None:
    assert asked(cli) is None
    assert asked(cli, "--pty") == {"columns": 80, "rows": 24, "term": "xterm-256color"}
    named = asked(cli, "--pty", "--size", "132x50", "--term", "vt100")
    assert named == {"columns": 132, "rows": 50, "term": "vt100"}


def test_it_is_like_our_own(terminal: Terminal) -> None:
    child = terminal("start", "--dry-run", "--json", "--pty", "--", "true", TERM="screen")
    text, code = finish(child)
    assert code == 0
    assert json.loads(text)["pty"] == {"columns": 120, "rows": 40, "term": "screen"}


@pytest.mark.parametrize("odd", ["", "no/terminfo name", "x" * 65])
def test_an_odd_terminal_of_our_own_is_no_reason_to_fail(terminal: Terminal, odd: str) -> None:
    text, code = finish(terminal("start", "--dry-run", "--json", "--pty", "--", "true", TERM=odd))
    assert code == 0
    assert json.loads(text)["pty"] == {"columns": 120, "rows": 40, "term": "xterm-256color"}


@pytest.mark.parametrize(
    ("words", "field"),
    [
        (("--size", "80x24"), "size"),
        (("--term", "vt100"), "term"),
        (("--pty", "--size", "80"), "size"),
        (("--pty", "--size", "80x24x2"), "size"),
        (("--pty", "--size", "-80x24"), "size"),
        (("--pty", "--size", "0x24"), "pty.columns"),
        (("--pty", "--size", "80x10001"), "pty.rows"),
        (("--pty", "--term", "no terminal"), "pty.term"),
    ],
)
def test_what_is_no_terminal_is_refused(cli: Cli, words: tuple[str, ...], field: str) -> None:
    result = cli("start", "--json", *words, "--", "true")
    assert result.code == 2
    assert result.error["details"] == {"field": field}


def test_the_program_gets_it(cli: Cli) -> None:
    run_id = cli.start("--pty", "--size", "132x50", "--term", "vt100", *LOOK)
    cli.ok("wait", run_id)
    assert cli.ok("logs", "--raw", run_id).raw == b"50 132\r\nvt100\r\n"
    assert cli.inspect(run_id)["pty"] == {"columns": 132, "rows": 50, "term": "vt100"}
    assert "132x50, vt100" in cli.ok("inspect", run_id).stdout


def test_run_has_it_too(cli: Cli) -> None:
    done = cli("run", "--pty", "--size", "90x20", *LOOK)
    assert (done.code, done.raw) == (0, b"20 90\r\nxterm-256color\r\n")


def test_input_comes_by_write_stdin(cli: Cli) -> None:
    run_id = cli.start("--pty", "--", "sh", "-c", "stty -echo; echo ready; cat")
    cli.ok("write-stdin", "--eof", run_id, "-", stdin=b"typed\n")
    cli.ok("wait", run_id)
    assert cli.ok("logs", "--raw", run_id).raw.endswith(b"typed\r\n")
