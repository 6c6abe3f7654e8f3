"""The helpers in C, compiled for this run."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

PROGRAMS = Path(__file__).parent / "programs"
_FLAGS = {"slow_sync": ["-shared", "-fPIC", "-ldl"]}
NAMES = ("writer", "slow_sync", "fake_runtime")


def compile_all(into: Path) -> dict[str, Path]:
    """Paths by name; empty where there is no compiler, without those that do not compile."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    made: dict[str, Path] = {}
    if compiler is None:
        return made
    into.mkdir(parents=True, exist_ok=True)
    for name in NAMES:
        target = into / name
        argv = [compiler, "-O2", "-o", str(target), str(PROGRAMS / f"{name}.c"), *_FLAGS.get(name, [])]
        if subprocess.run(argv, capture_output=True, check=False, timeout=60).returncode == 0:
            made[name] = target
    return made
