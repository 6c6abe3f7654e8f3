"""A real disk becomes read-only under live runs, and is good again: nobody waits, nothing is invented."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.crash.harness import ROOT
from tests.lab.disk import read_only

APART = ["unshare", "--mount", "--propagation", "private"]
IMAGE_BYTES = 96 << 20

pytestmark = [
    pytest.mark.skipif(
        os.geteuid() != 0 or shutil.which("unshare") is None, reason="making a disk read-only needs root"
    ),
    pytest.mark.timeout(180),
]


def experiment(name: str, folder: Path, *image: str) -> dict[str, Any]:
    if subprocess.run([*APART, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no right to mount here")
    mount = folder / "mount"
    mount.mkdir()
    command = [*APART, sys.executable, str(read_only.__file__), name, str(mount), str(folder), *image]
    env = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"}
    done = subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True, check=False)
    if "failed to setup loop device" in done.stderr:
        pytest.skip("no loop devices here")
    assert done.returncode == 0, done.stderr[-6000:]
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    print(told)
    return told


def test_under_a_read_only_mount_and_out_of_it_again(tmp_path: Path) -> None:
    told = experiment("covered", tmp_path)
    assert (told["start"], told["open"]) == ("STATE_DIR_REFUSED", "STATE_DIR_REFUSED")
    assert (told["r-1"], told["r-2"]) == ("finished", "absent")
    assert told["dropped"] > 0
    assert told["why"] == ["io_error"]


@pytest.mark.skipif(
    any(shutil.which(tool) is None for tool in ("mkfs.ext4", "e2fsck")), reason="needs the tools of ext4"
)
def test_a_disk_that_has_met_an_error(tmp_path: Path) -> None:
    image = tmp_path / "disk.img"
    with image.open("wb") as file:
        file.truncate(IMAGE_BYTES)
    subprocess.run(["mkfs.ext4", "-q", str(image)], check=True)
    told = experiment("aborted", tmp_path, str(image))
    assert told["start"] != "done"
    assert told["r-1"] in ("unknown", "finished")
