"""The README's example runs as it stands, and again under the same request id."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_example_runs_and_goes_on(state_dir: Path, tmp_path: Path) -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    found = re.search(r"```python\n(.*?)```", text, flags=re.DOTALL)
    assert found is not None
    example = found[1].replace("sleep 1", "sleep 0.1").replace('"/tmp"', repr(str(tmp_path)))
    assert len(example.splitlines()) <= 25

    def run() -> list[str]:
        done = subprocess.run(
            [sys.executable, "-c", example],
            env={
                "PATH": os.environ["PATH"],
                "PYTHONPATH": str(ROOT / "src"),
                "DURABLE_SUPERVISOR_STATE_DIR": str(state_dir),
            },
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        assert done.stderr == ""
        return done.stdout.splitlines()

    first = run()
    told = re.search(r"```\n(1 run\.dispatched\n.*?)```", text, flags=re.DOTALL)
    assert told is not None
    shown = told[1].splitlines()
    before, after = shown[: shown.index("…")], shown[shown.index("…") + 1 :]
    assert [line.rstrip() for line in first[: len(before)]] == before
    assert [line.split()[1:] for line in first[-len(after) :]] == [line.split()[1:] for line in after]
    assert run() == first  # nothing was executed twice: the same events
