"""Where the guarantees cannot be kept, nothing is started."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from durable_supervisor.journal import opening
from durable_supervisor.journal.connection import Journal
from durable_supervisor.model.errors import ErrorCode, SupervisorError
from durable_supervisor.model.platform import check_platform

# What an interpreter of Windows lacks is taken away before anything of ours is imported.
WINDOWS = """
import sys
for name in ("fcntl", "pwd", "resource", "termios", "tty", "typer"):
    sys.modules[name] = None
"""
COMMAND = "\nfrom durable_supervisor.cli.main import main\nsys.argv = ['dsup', *sys.argv[1:]]\nmain()"


async def test_a_sqlite_that_is_too_old_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "OLDEST_SQLITE", (99, 0, 0))
    with pytest.raises(SupervisorError) as caught:
        await Journal.open(tmp_path / "state" / "journal.db")
    assert caught.value.code is ErrorCode.UNSUPPORTED_PLATFORM
    assert caught.value.hint
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize("platform", ["darwin", "win32", "freebsd14"])
def test_another_system_is_refused_by_name(platform: str) -> None:
    with pytest.raises(SupervisorError) as caught:
        check_platform(platform)
    assert caught.value.code is ErrorCode.UNSUPPORTED_PLATFORM
    assert platform in caught.value.message
    assert caught.value.hint


def run(script: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", script, *words], capture_output=True, text=True)


def test_on_windows_the_names_answer_with_the_error() -> None:
    for name in ("Supervisor", "Observer"):
        done = run(f"{WINDOWS}\nsys.platform = 'win32'\nfrom durable_supervisor import {name}")
        assert "UNSUPPORTED_PLATFORM: durable_supervisor needs Linux (this is win32)" in done.stderr
    done = run(f"{WINDOWS}\nsys.platform = 'win32'\nfrom durable_supervisor import Command, Limits")
    assert done.returncode == 0, "what to run can be said anywhere"


def test_on_windows_the_command_says_so_in_one_line() -> None:
    script = f"{WINDOWS}\nsys.platform = 'win32'{COMMAND}"
    plain, typed = run(script, "list"), run(script, "list", "--json")
    assert (plain.returncode, typed.returncode, plain.stdout, typed.stdout) == (5, 5, "", "")
    [line] = plain.stderr.splitlines()
    assert line.startswith("error: UNSUPPORTED_PLATFORM: ")
    assert json.loads(typed.stderr)["error"]["code"] == "UNSUPPORTED_PLATFORM"


def test_without_its_extra_the_command_says_what_to_install() -> None:
    for missing, verb in (("typer", "--help"), ("rich", "capabilities")):
        done = run(f"import sys\nsys.modules['{missing}'] = None{COMMAND}", verb)
        assert done.returncode == 5
        [line] = done.stderr.splitlines()
        assert line.startswith(f"error: EXTRA_MISSING: this needs {missing}, ")
        assert "durable-supervisor[cli]" in line
