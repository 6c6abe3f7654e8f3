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
    example = found[1].replace('"rg"', '"echo"').replace('"/repo"', repr(str(tmp_path)))
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
    assert any(line.endswith(" output TODO src") for line in first)
    assert first[-1] == "finished Outcome(exited, code=0)"
    assert run() == first  # nothing was executed twice: the same events
