"""Where /proc cannot prove who a process is, nothing is started, let alone signalled."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.crash.harness import ROOT

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("unshare") is None, reason="a namespace needs root"
)
OPENS = """
import asyncio, sys
from durable_supervisor import Supervisor, SupervisorError

async def main():
    try:
        async with Supervisor.open(sys.argv[1]):
            print("opened")
    except SupervisorError as error:
        print(error.code.value)

asyncio.run(main())
"""


def opened(state_dir: Path, *apart: str) -> str:
    done = subprocess.run(
        [*apart, sys.executable, "-c", OPENS, str(state_dir)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    )
    if done.stderr.startswith(("unshare:", "mount:", "umount:")):
        pytest.skip(f"no right to do that here: {done.stderr}")
    return done.stdout.strip()


@pytest.mark.parametrize(
    ("apart", "word"),
    [
        (["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"], "opened"),
        (["unshare", "--pid", "--fork", "--kill-child"], "UNSUPPORTED_PLATFORM"),
        (["unshare", "--mount", "sh", "-c", 'umount -l /proc; exec "$@"', "sh"], "UNSUPPORTED_PLATFORM"),
        (
            ["unshare", "--mount", "sh", "-c", 'mount -t proc -o subset=pid proc /proc; exec "$@"', "sh"],
            "UNSUPPORTED_PLATFORM",
        ),
    ],
    ids=["its own", "of an outer namespace", "none", "processes alone"],
)
def test_a_directory_opens_only_beside_a_proc_of_our_own(
    state_dir: Path, apart: list[str], word: str
) -> None:
    assert opened(state_dir, *apart) == word
