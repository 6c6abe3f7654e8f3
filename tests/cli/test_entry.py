"""The entry points: what they load, what they say when nothing works."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from durable_supervisor import __version__
from durable_supervisor.cli.verbs import VERBS
from tests.cli.helpers import COMMAND, Cli, assert_one_error_line, environment
from tests.support import eventually

HEAVY = ("rich", "pydantic", "sqlite3", "asyncio", "psutil", "structlog", "typer")


def loaded(*words: str, state_dir: Path | None = None) -> set[str]:
    """Which of the heavy modules one call imports."""
    code = (
        "import atexit, os, sys\n"
        "from durable_supervisor.cli.main import main\n"
        "sys.argv = ['dsup', *sys.argv[1:]]\n"
        "leave = os._exit\n"
        "def tell(code=None):\n"
        f"    os.write(2, ' '.join(name for name in {HEAVY!r} if name in sys.modules).encode())\n"
        "    leave(code or 0)\n"
        "os._exit = tell\n"
        "atexit.register(tell)\n"  # where a thread takes its time, that is how it leaves
        "main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *words],
        capture_output=True,
        env=environment(state_dir),
        check=False,
        text=True,
    )
    return set(done.stderr.split())


def test_version_loads_nothing() -> None:
    assert loaded("--version") == set()


def test_version(cli: Cli) -> None:
    assert cli.ok("--version").stdout == f"durable-supervisor {__version__}\n"
    assert cli.ok("--version", "--json").document == {"version": __version__}
    assert cli.ok("-V").stdout == cli.ok("--version").stdout


def test_start_loads_only_what_it_uses(state_dir: Path) -> None:
    assert loaded("start", "--dry-run", "--json", "--", "true") == set()
    assert loaded("start", "--", "sleep", "1", state_dir=state_dir) == {"sqlite3"}
    run_id = Cli(state_dir).start("--", "true")
    assert loaded("inspect", "--json", run_id, state_dir=state_dir) == {"asyncio", "sqlite3"}


def test_the_package_itself_can_be_run(cli: Cli) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "durable_supervisor", "list", "--json"],
        capture_output=True,
        env=environment(cli.state_dir),
        check=True,
    )
    assert done.stdout == cli.ok("list", "--json").raw


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help_with_an_example_and_exit_codes(verb: str) -> None:
    done = subprocess.run(
        [*COMMAND, verb, "--help"], capture_output=True, text=True, env=environment(), check=True
    )
    assert "Example:" in done.stdout
    assert "--json" in done.stdout
    assert "--state-dir" in done.stdout
    assert "Exit codes: 0 ok" in done.stdout
    assert done.stderr == ""


def test_help_lists_every_verb(cli: Cli) -> None:
    text = cli.ok("--help").stdout
    assert all(f"  {verb} " in text for verb in VERBS)
    assert cli.ok().stdout == text
    page = (Path(__file__).resolve().parents[2] / "docs" / "cli.md").read_text(encoding="utf-8")
    assert all(f"| `{verb}` |" in page for verb in VERBS)


def test_a_missing_verb_is_suggested(cli: Cli) -> None:
    done = cli("inspct", "x")
    assert done.code == 2
    assert_one_error_line(done, "INVALID_REQUEST")
    assert "did you mean 'inspect'" in done.stderr


@pytest.mark.parametrize(("elsewhere", "here"), [("ps", "list"), ("kill", "stop"), ("help", "--help")])
def test_a_verb_of_another_tool_is_suggested(cli: Cli, elsewhere: str, here: str) -> None:
    done = cli(elsewhere)
    assert done.code == 2
    assert f"did you mean '{here}'" in done.stderr


def test_usage_names_arguments_plainly(cli: Cli) -> None:
    text = cli.ok("start", "--help").stdout
    assert text.splitlines()[0].endswith("start [OPTIONS] PROGRAM [ARGUMENT]...")
    assert "  PROGRAM  The program" in text
    assert "<" not in cli.ok("write-stdin", "--help").stdout


def test_hints_use_the_name_that_was_called(cli: Cli, tmp_path: Path) -> None:
    named = tmp_path / "dsup"
    named.write_text("from durable_supervisor.cli.main import main\nmain()\n")
    done = subprocess.run(
        [sys.executable, str(named), "inspect", "none"],
        env=environment(cli.state_dir),
        capture_output=True,
        text=True,
        check=False,
    )
    assert "(`dsup list` shows" in done.stderr
    assert "`durable-supervisor list` shows" in cli("inspect", "none").stderr


def test_a_traceback_only_on_request(tmp_path: Path) -> None:
    """The guard, shown by a state directory that no code expects to be a file."""
    odd = tmp_path / "file"
    odd.write_text("x")
    cli = Cli(odd)
    done = cli("list")
    assert done.code == 5
    assert_one_error_line(done, "STATE_DIR_REFUSED")
    assert "Traceback" in cli("list", DURABLE_SUPERVISOR_DEBUG="1").stderr


def test_completion_of_verbs_and_run_ids(cli: Cli) -> None:
    run_id = cli.start("--", "true")

    def complete(words: str) -> list[str]:
        done = subprocess.run(
            [*COMMAND],
            capture_output=True,
            text=True,
            check=False,
            env=environment(
                cli.state_dir,
                _DURABLE_SUPERVISOR_COMPLETE="complete_bash",
                COMP_WORDS=words,
                COMP_CWORD=str(len(words.split(" ")) - 1),
            ),
        )
        assert done.stderr == ""
        return done.stdout.split()

    assert complete("dsup ins") == ["inspect"]
    assert complete(f"dsup inspect {run_id[:3]}") == [run_id]
    assert complete("dsup inspect ~") == []
    assert complete("dsup run --network ") == ["host", "none", "loopback"]
    assert complete("dsup run --enforcement network=") == ["network=best_effort", "network=required"]
    assert complete("dsup start --files-backend b") == ["bubblewrap"]
    assert complete("dsup start --on-limit te") == ["terminate"]
    assert complete("dsup start --completion ") == ["leader", "tree"]
    assert complete("dsup list --state qu") == ["queued", "quarantined"]
    assert complete("dsup events --kind output") == ["output", "output.dropped"]
    assert complete("dsup logs --stream std") == ["stdout", "stderr"]
    assert complete(f"dsup signal {run_id} USR") == ["USR1", "USR2"]
    assert complete("dsup service ") == ["install", "uninstall", "print"]


def test_completion_of_nothing_is_silent(tmp_path: Path) -> None:
    done = subprocess.run(
        [*COMMAND],
        capture_output=True,
        text=True,
        check=False,
        env=environment(
            tmp_path / "none",
            _DURABLE_SUPERVISOR_COMPLETE="complete_bash",
            COMP_WORDS="dsup inspect ",
            COMP_CWORD="2",
        ),
    )
    assert (done.stdout.strip(), done.stderr) == ("", "")
    assert not os.path.exists(tmp_path / "none")


def test_a_locale_without_unicode_is_no_obstacle(cli: Cli) -> None:
    run_id = cli.start("--", "echo", "café ☃")
    cli("wait", run_id)
    for words in (["list"], ["inspect", run_id], ["logs", run_id], ["events", run_id]):
        done = cli(*words, LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0")
        assert done.code == 0, done.stderr
    form = json.loads(cli("list", "--json", LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0").stdout)
    assert form["runs"][0]["argv"] == ["echo", "café ☃"]


@pytest.mark.parametrize("words", [["--version"], ["--version", "--json"], ["--help"], ["list", "--help"]])
def test_what_cannot_be_printed_is_one_error_line(cli: Cli, words: list[str]) -> None:
    for stdout, reason in (("/dev/full", "No space left on device"), ("&-", "Bad file descriptor")):
        done = subprocess.run(
            ["sh", "-c", f'exec "$@" >{stdout}', "sh", *COMMAND, *words],
            capture_output=True,
            text=True,
            check=False,
            env=environment(cli.state_dir),
        )
        assert done.returncode == 1
        assert f"cannot write to stdout: {reason}" in done.stderr
        assert done.stderr.count("\n") == 1, done.stderr


def test_an_empty_directory_is_a_mistake_not_the_default(cli: Cli) -> None:
    """A script's "$DIR" that was never set: `gc --apply` would be another directory's."""
    for words in (["list", "--state-dir", ""], ["--state-dir", "", "gc", "--keep", "0", "--apply"]):
        done = cli(*words)
        assert done.code == 5
        assert_one_error_line(done, "STATE_DIR_REFUSED")
    done = cli("start", "--cwd", "", "--", "true")
    assert done.code == 2
    assert "--cwd: is empty" in done.stderr
    assert cli.ok("list", "--json").document["runs"] == []


def closed(cli: Cli, descriptor: int, *words: str) -> tuple[int, str]:
    """Call the command with one of its standard descriptors closed; the exit code and the other output."""
    done = subprocess.run(
        ["sh", "-c", f'exec "$@" {descriptor}{"<" if descriptor == 0 else ">"}&-', "sh", *COMMAND, *words],
        capture_output=True,
        text=True,
        check=False,
        env=environment(cli.state_dir),
    )
    return done.returncode, done.stdout + done.stderr


def test_closed_descriptors_never_become_something_else(cli: Cli) -> None:
    """The next file opened would get the number of a closed stdout, and take what is printed."""
    run_id = cli.start("--", "echo", "kept")
    cli("wait", run_id)
    code, said = closed(cli, 1, "start", "--json", "--", "true")
    assert code == 1
    assert "cannot write to stdout" in said
    assert said.count("\n") == 1
    assert closed(cli, 2, "inspect", "nosuchrun") == (3, "")
    assert closed(cli, 0, "run", "--", "cat") == (0, "")
    code, said = closed(cli, 0, "run", "--stdin", "-", "--", "cat")
    assert code == 2
    assert said.startswith("error: INVALID_REQUEST: --stdin: ")
    assert cli.ok("logs", run_id).stdout == "kept\n"
    eventually(lambda: states(cli) == ["finished"] * 3)


def states(cli: Cli) -> list[str]:
    return [run["state"] for run in cli.ok("list", "--json").document["runs"]]


def test_an_impatient_ctrl_c_at_the_very_end_leaves_with_what_had_been_decided(state_dir: Path) -> None:
    code = (
        "import os, signal, sys, threading\n"
        "from durable_supervisor.cli.main import main\n"
        "def hang():\n"
        "    threading.main_thread().join()\n"  # until the interpreter waits for us
        "    while not threading.Event().wait(0.02):\n"  # one just before it blocks does not wake it
        "        os.kill(os.getpid(), signal.SIGINT)\n"
        "threading.Thread(target=hang).start()\n"
        "sys.argv = ['dsup', 'inspect', 'nothing']\n"
        "main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, env=environment(state_dir), timeout=60, text=True
    )
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith("error: UNKNOWN_RUN: ")
    assert done.stderr.count("\n") == 1


def test_a_full_disk_behind_stdout_is_one_line(cli: Cli) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [*COMMAND, "list"],
            stdout=full,
            stderr=subprocess.PIPE,
            env=environment(cli.state_dir),
            check=False,
        )
    assert done.returncode == 1
    assert done.stderr.startswith(b"error: INTERNAL: cannot write to stdout")
    assert done.stderr.count(b"\n") == 1


def test_an_error_line_holds_nothing_that_looks_like_a_credential(cli: Cli) -> None:
    body = "Zq7Zq7wE3wE3rT5rT5yU8yU8iO2iO2pA4pA4"
    for words in (("inspect", f"ghp_{body}"), ("inspect", "--json", f"ghp_{body}")):
        told = cli(*words)
        assert told.code != 0
        assert body not in told.stderr


def test_the_list_of_verbs_cuts_no_sentence(cli: Cli) -> None:
    verbs = cli.ok("--help", COLUMNS="80").stdout.partition("Commands:")[2]
    assert all(f"\n  {verb} " in verbs for verb in VERBS)
    assert "..." not in verbs


def test_a_client_names_the_extra_that_it_lacks() -> None:
    code = "import sys; sys.modules['h11'] = None; from durable_supervisor import Client"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, env=environment(), text=True)
    assert "ModuleNotFoundError: Client needs h11: pip install 'durable-supervisor[client]'" in done.stderr
