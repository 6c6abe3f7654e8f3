"""The README's examples run as they stand, and print what it says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
# Each whole program, with what it prints behind it.
PROGRAMS = re.findall(r"```python\n(import asyncio\n.*?)```\n\n```\n(.*?)```", README, flags=re.DOTALL)


def run(*arguments: str, state_dir: Path | None = None) -> list[str]:
    """The lines that Python prints with these arguments."""
    path = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, *arguments],
        env={
            "PATH": os.environ["PATH"],
            "PYTHONPATH": path,
            "DURABLE_SUPERVISOR_STATE_DIR": str(state_dir or ROOT / "not used"),
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout.splitlines()


def test_the_three_calls_do_what_is_shown(state_dir: Path, tmp_path: Path) -> None:
    (example, shown), _ = PROGRAMS
    project = tmp_path / "project"
    project.mkdir()
    (project / "notes.txt").write_text("TODO: write them\n")
    printed = run("-c", example.replace("/srv/project", str(project)), state_dir=state_dir)
    assert printed == shown.splitlines()


def test_the_durable_example_runs_and_goes_on(state_dir: Path, tmp_path: Path) -> None:
    _, (text, told) = PROGRAMS
    example = text.replace("sleep 1", "sleep 0.1").replace('"/tmp"', repr(str(tmp_path)))
    assert len(example.splitlines()) <= 25
    first = run("-c", example, state_dir=state_dir)
    shown = told.splitlines()
    before, after = shown[: shown.index("…")], shown[shown.index("…") + 1 :]
    assert [line.rstrip() for line in first[: len(before)]] == before
    assert [line.split()[1:] for line in first[-len(after) :]] == [line.split()[1:] for line in after]
    assert run("-c", example, state_dir=state_dir) == first  # nothing was executed twice: the same events


def test_the_example_of_an_agent_host_runs() -> None:
    printed = run(str(ROOT / "examples" / "agent_host.py"))
    for expected in ("  3 lines of notes", "  stdout: line 2", "  goodbye"):
        assert expected in printed
    assert [line for line in printed if line.startswith("timed_out") and line.endswith("left alive: 0")]
