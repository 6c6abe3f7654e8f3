"""Every verb and every kind of violence at random, in two short experiments; `make lab` has long ones.

``LAB_SEED=n`` (``make lab LAB_SEED=n``) does the one experiment of that seed again.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
FULL = os.environ.get("LAB_FULL") == "1"
SEED = os.environ.get("LAB_SEED")
KILLS = int(os.environ.get("LAB_KILLS", "10000" if FULL and SEED is None else "150"))
HOURS = 4 if FULL else 0.1


@pytest.mark.timeout(HOURS * 3600)
@pytest.mark.parametrize("first", [int(SEED)] if SEED else [1] if FULL else [1, 2])
def test_any_verb_and_any_death_in_any_order(first: int) -> None:
    """In a process of its own, which forks: it has no threads, and reaps whatever is orphaned."""
    words = [sys.executable, "-m", "tests.lab.model", "--seed", str(first), "--kills", str(KILLS)]
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
