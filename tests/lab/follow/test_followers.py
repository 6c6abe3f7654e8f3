"""Forty followers in a few bad seconds; `make lab` has longer ones."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.lab.forms import FULL

ROOT = Path(__file__).resolve().parents[3]
SECONDS = 300 if FULL else 5
SEEDS = (1, 2) if FULL else (1,)


@pytest.mark.timeout(2 * SECONDS + 120)
@pytest.mark.parametrize("seed", SEEDS)
def test_each_is_told_each_event_once(seed: int) -> None:
    words = [sys.executable, "-m", "tests.lab.follow", "--seed", str(seed), "--seconds", str(SECONDS)]
    path = os.pathsep.join((str(ROOT / "src"), str(ROOT)))
    done = subprocess.run(
        words,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"},
        stdin=subprocess.DEVNULL,
        stdout=None if FULL else subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
