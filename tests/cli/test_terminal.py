"""On a terminal: Ctrl-C, colours, escapes."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.cli.helpers import COMMAND, Cli, environment
from tests.cli.terminals import Terminal, finish
from tests.support import eventually

TICKS = "i=0; while :; do i=$((i+1)); echo tick $i; sleep 0.05; done"


@contextmanager
def owner_of(state_dir: Path) -> Iterator[int]:
    """Another process that owns the directory until the block ends."""
    script = (
        "import asyncio, sys\nfrom durable_supervisor import Supervisor\n"
        "async def main():\n"
        "    async with Supervisor.open():\n"
        "        print('mine', flush=True)\n"
        "        await asyncio.to_thread(sys.stdin.read)\n"
        "asyncio.run(main())\n"
    )
    owner = subprocess.Popen(
        [COMMAND[0], "-c", script],
        env=environment(state_dir),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == b"mine\n"
        yield owner.pid
        assert owner.stdin is not None
        owner.stdin.close()


def only_run(cli: Cli) -> str:
    runs = cli.ok("list", "--json").document["runs"]
    assert len(runs) == 1
    return str(runs[0]["run_id"])


def test_ctrl_c_stops_a_run_gracefully(cli: Cli, terminal: Terminal) -> None:
    child = terminal("run", "--", "sh", "-c", "trap 'echo saved; exit 3' TERM; " + TICKS)
    child.expect("tick 3")
    child.sendintr()
    wanted = ["stopping", "saved"]  # the word is not waited for before the program is told
    while wanted:
        del wanted[child.expect(wanted)]
    assert finish(child)[1] == 3
    form = cli.inspect(only_run(cli))
    assert form["outcome"] == {"kind": "cancelled", "code": 3, "signal": None}


def test_a_second_ctrl_c_kills(cli: Cli, terminal: Terminal) -> None:
    child = terminal("run", "--grace", "60", "--", "sh", "-c", "trap '' TERM INT; " + TICKS)
    child.expect("tick 3")
    child.sendintr()
    child.expect("again to kill")
    child.sendintr()
    child.expect("killing")
    assert finish(child)[1] == 137
    form = cli.inspect(only_run(cli))
    assert form["outcome"] == {"kind": "cancelled", "code": None, "signal": 9}


def test_a_third_ctrl_c_leaves_without_waiting(cli: Cli, terminal: Terminal) -> None:
    child = terminal("run", "--", "sh", "-c", TICKS)
    child.expect("tick 3")
    run_id = only_run(cli)
    worker = cli.inspect(run_id)["worker"]["pid"]
    os.kill(worker, signal.SIGSTOP)  # so that nothing is confirmed
    try:
        for words in ("again to kill", "again to leave", "nothing confirmed"):
            child.sendintr()
            child.expect(words)
        assert finish(child)[1] == 130
    finally:
        os.kill(worker, signal.SIGCONT)
    assert cli.ok("stop", "--json", run_id).document["confirmed"] is True


def test_ctrl_c_detaches_from_a_run(cli: Cli, terminal: Terminal) -> None:
    run_id = cli.start("--", "sh", "-c", TICKS)
    child = terminal("attach", run_id)
    child.expect("tick 3")
    child.sendintr()
    child.expect("the run goes on")
    text, code = finish(child)
    assert code == 0
    assert "Traceback" not in text
    assert cli.inspect(run_id)["state"] == "running"
    cli.ok("stop", run_id)


def test_ctrl_c_leaves_a_follower_quietly(cli: Cli, terminal: Terminal) -> None:
    run_id = cli.start("--", "sh", "-c", TICKS)
    for words in (["events", "--follow", run_id], ["logs", "--follow", run_id]):
        child = terminal(*words)
        child.expect("tick 2")
        child.sendintr()
        text, code = finish(child)
        assert code == 130
        assert "Traceback" not in text
        assert "Exception" not in text
    child = terminal("wait", run_id)
    # It says nothing while it waits: its libraries tell that the interpreter is past its own start.
    eventually(lambda: "sqlite" in Path(f"/proc/{child.pid}/maps").read_text())
    child.sendintr()
    assert "Traceback" not in finish(child)[0]
    assert cli.inspect(run_id)["state"] == "running"
    cli.ok("stop", run_id)


def test_a_hostile_program_cannot_act_on_the_terminal(cli: Cli, terminal: Terminal) -> None:
    script = "printf '\\033]0;owned\\007\\033[2J\\302\\2331m'; printf '\\033[31mred' >&2; echo"
    ran, _ = finish(terminal("run", "--", "sh", "-c", script, NO_COLOR="1"))
    run_id = only_run(cli)
    shown = [ran]
    for verb in ("logs", "attach", "replay", "events", "inspect"):
        shown.append(finish(terminal(verb, run_id, NO_COLOR="1"))[0])
    shown.append(finish(terminal("list", NO_COLOR="1"))[0])
    for text in shown:
        assert "\x1b]0" not in text
        assert "\x1b[2J" not in text
        assert "\x07" not in text
        assert "\x9b" not in text
    assert "\\x1b]0;owned\\x07" in ran
    raw, _ = finish(terminal("logs", "--raw", run_id))
    assert "\x1b]0;owned\x07" in raw


def test_colours_only_where_they_are_wanted(cli: Cli, terminal: Terminal) -> None:
    run_id = cli.start("--", "sh", "-c", "exit 1")
    cli("wait", run_id)
    assert "\x1b[" in finish(terminal("list"))[0]
    assert "\x1b[" in finish(terminal("events", run_id))[0]
    assert "\x1b[3" not in finish(terminal("list", NO_COLOR="1"))[0]
    assert "\x1b[3" not in finish(terminal("events", run_id, TERM="dumb"))[0]
    assert "\x1b" not in cli.ok("list", FORCE_COLOR="1").stdout
    assert "\x1b" not in cli.ok("inspect", run_id).stdout


def test_run_tells_its_id_to_a_person(cli: Cli, terminal: Terminal) -> None:
    text, code = finish(terminal("run", "--", "echo", "hello"))
    assert code == 0
    assert "hello" in text
    assert only_run(cli) in text


def test_a_narrow_terminal_cuts_only_the_command(cli: Cli, terminal: Terminal) -> None:
    run_id = cli.start("--request-id", "nightly-report", "--", "sh", "-c", "exit 0", "x" * 300)
    cli("wait", run_id)
    child = terminal("list", NO_COLOR="1")
    child.setwinsize(40, 80)
    text, _ = finish(child)
    row = text.splitlines()[1]
    assert row.startswith(f"{run_id}  exited 0 ")
    assert "nightly-report" in row
    assert row.endswith("…")


def test_a_person_is_told_how_a_run_ended_and_what_an_empty_list_is_of(cli: Cli, terminal: Terminal) -> None:
    assert f"no runs in {cli.state_dir}" in finish(terminal("list"))[0]
    text, code = finish(terminal("run", "--timeout", "300ms", "--", "sleep", "3131"))
    assert (code, "[timed_out (TERM)]" in text) == (124, True)
    assert "[exited" not in finish(terminal("run", "--", "false"))[0]


def test_a_person_is_told_who_is_waited_for(cli: Cli, terminal: Terminal) -> None:
    with owner_of(cli.state_dir) as pid:
        child = terminal("start", "--", "true")
        child.expect(f"waiting for process {pid}")
    child.expect("attempt 1")
    assert finish(child)[1] == 0
