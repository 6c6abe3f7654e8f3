"""Copies of a live ext4 image, taken while runs begin and end on it, are mounted and opened."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.crash.harness import ROOT
from tests.lab.disk import ext4
from tests.lab.forms import FULL

COPIES = 25
IMAGE_BYTES = 48 << 20
TOOLS = ("mkfs.ext4", "unshare", "mount", "umount")

pytestmark = [
    pytest.mark.skipif(not FULL, reason="make lab"),
    pytest.mark.skipif(
        os.geteuid() != 0 or any(shutil.which(tool) is None for tool in TOOLS),
        reason="mounting an image needs root and mkfs.ext4",
    ),
    pytest.mark.timeout(900),
]


@pytest.mark.parametrize("at_once", [1, 4])
def test_copies_of_a_live_image(tmp_path: Path, at_once: int) -> None:
    image = tmp_path / "disk.img"
    with image.open("wb") as file:
        file.truncate(IMAGE_BYTES)
    subprocess.run(["mkfs.ext4", "-q", str(image)], check=True)
    apart = ["unshare", "--mount", "--propagation", "private"]
    if subprocess.run([*apart, "true"], check=False).returncode:
        pytest.skip("no right to mount here")
    command = [*apart, sys.executable, str(ext4.__file__), str(image), str(tmp_path)]
    command += [str(COPIES), str(at_once)]
    env = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"}
    done = subprocess.run(command, env=env, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert [one["broken"] for one in told if "broken" in one] == []
    assert done.returncode == 0
    assert len(told) >= COPIES // 2
    assert any("found" in one for one in told)
    print(*told, sep="\n")
