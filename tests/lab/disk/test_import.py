"""A disk that goes bad under an import: a typed error, and nothing of the run is there."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.crash.harness import ROOT
from tests.lab.disk import importing
from tests.lab.disk.faults import Faults, Role
from tests.lab.disk.importing import CHOSEN
from tests.lab.forms import FULL

APART = ["unshare", "--mount", "--propagation", "private"]
SAMPLE = (3, 21)  # a write, and the sync of its name

pytestmark = pytest.mark.timeout(600)


def told_by(command: list[str], env: dict[str, str]) -> list[dict[str, Any]]:
    """What became of each experiment; none may have broken a promise."""
    paths = {"PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"}
    done = subprocess.run(
        command, env={**os.environ, **env, **paths}, cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-6000:]
    found: list[dict[str, Any]] = [json.loads(line) for line in done.stdout.splitlines()]
    print(*found, sep="\n")
    assert [one["broken"] for one in found if "broken" in one] == []
    return found


@pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("unshare") is None, reason="mounting a small file system needs root"
)
def test_a_small_disk_that_fills_under_it(tmp_path: Path) -> None:
    if subprocess.run([*APART, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no right to mount here")
    mount = tmp_path / "mount"
    mount.mkdir()
    command = [*APART, sys.executable, str(importing.__file__), "full", str(mount), str(tmp_path)]
    found = told_by(command, {})
    assert {one["step"]: one["told"] for one in found} == {step: importing.STEPS[step] for step in CHOSEN}


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO] if FULL else [errno.EIO], ids=errno.errorcode.get)
def test_any_call_fails(tmp_path: Path, error: int) -> None:
    """Whichever it is: it is refused, nothing of it is kept, and the next one is taken."""
    place = tmp_path / "places"
    place.mkdir()
    faults = Faults(tmp_path, place)
    words = ["calls", str(place), str(tmp_path), str(error), *([] if FULL else map(str, SAMPLE))]
    command = [sys.executable, str(importing.__file__), *words]
    found = told_by(command, faults.environment(Role.OWNER))
    faults.close()
    struck = [one for one in found if one["call"]]
    refusal = "NO_SPACE" if error == errno.ENOSPC else "STATE_DIR_REFUSED"
    assert {one["told"] for one in struck} == {refusal}
    assert {one["call"] for one in struck} >= {"write", "sync_dir"}
