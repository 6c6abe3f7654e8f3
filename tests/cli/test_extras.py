"""Without the extras: what needs none works, what needs one says which, and how to get it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import durable_supervisor
from durable_supervisor.model.errors import ErrorCode

SOURCE = str(Path(durable_supervisor.__file__).parent.parent)
ALL = ("aiohttp", "h11", "multidict", "prometheus_client", "rich", "typer", "wsproto")
# As in an environment that has none of them: nobody finds them.
HIDING = """
import sys
class Hiding:
    def __init__(self, finder):
        self.finder = finder
    def find_spec(self, name, path=None, target=None):
        return None if name.partition(".")[0] in {hidden} else self.finder.find_spec(name, path, target)
sys.meta_path[:] = [Hiding(finder) for finder in sys.meta_path]
sys.path.insert(0, {source!r})
"""
COMMAND = "from durable_supervisor.cli.main import main\nsys.argv = ['dsup', *sys.argv[1:]]\nmain()"
OPEN = """
import asyncio, durable_supervisor
async def main():
    try:
        async with durable_supervisor.open(sys.argv[1], serve=True):
            print("served")
    except durable_supervisor.SupervisorError as error:
        print(error.code.value, error.details["extra"], error.hint)
asyncio.run(main())
"""


def run(script: str, *words: str, hidden: tuple[str, ...] = ALL) -> subprocess.CompletedProcess[str]:
    whole = HIDING.format(hidden=hidden, source=SOURCE) + script
    return subprocess.run(
        [sys.executable, "-I", "-c", whole, *words], capture_output=True, text=True, timeout=60
    )


@pytest.mark.parametrize(
    ("hidden", "extra", "words"),
    [
        ("typer", "cli", ["--help"]),
        ("typer", "cli", ["start", "--no-such-option"]),
        ("rich", "cli", ["capabilities"]),
        ("h11", "client", ["list", "--socket", "/nowhere/socket"]),
        ("aiohttp", "daemon", ["serve", "--allow-root"]),
        ("prometheus_client", "daemon", ["serve", "--allow-root"]),
    ],
)
def test_the_command_names_the_extra(hidden: str, extra: str, words: list[str], state_dir: Path) -> None:
    options = ["--state-dir", str(state_dir)] if "--socket" not in words else []
    plain = run(COMMAND, *options, *words, hidden=(hidden,))
    assert (plain.returncode, plain.stdout) == (5, ""), plain.stderr
    [line] = plain.stderr.splitlines()
    assert line.startswith("error: EXTRA_MISSING: ")
    assert f"needs {hidden}" in line
    assert line.endswith(f"(pip install 'durable-supervisor[{extra}]')")
    if hidden == "rich":  # a document is no table
        return
    error = json.loads(run(COMMAND, "--json", *options, *words, hidden=(hidden,)).stderr)["error"]
    assert error["code"] == ErrorCode.EXTRA_MISSING.value
    assert error["details"] == {"extra": extra, "library": hidden}


def test_a_session_that_is_to_serve_names_the_extra(state_dir: Path) -> None:
    done = run(OPEN, str(state_dir))
    assert done.stdout.split(maxsplit=2) == [
        "EXTRA_MISSING",
        "daemon",
        "pip install 'durable-supervisor[daemon]'\n",
    ], done.stderr


def test_what_needs_no_extra_works_without_them(state_dir: Path) -> None:
    def told(*words: str) -> str:
        done = run(COMMAND, "--state-dir", str(state_dir), *words)
        assert (done.returncode, done.stderr) == (0, ""), words
        return done.stdout

    assert told("start", "--request-id", "one", "--", "sh", "-c", "echo said").split()[1] == "running"
    run_id = json.loads(told("list", "--json"))["runs"][0]["run_id"]
    assert told("wait", "--json", run_id)
    assert told("logs", run_id) == "said\n"
    assert json.loads(told("inspect", "--json", run_id))["state"] == "finished"
    assert json.loads(told("stop", "--json", run_id))["result"] == "already_ended"
    assert json.loads(told("feed", "--json").splitlines()[0])["trigger"] == "admit"
