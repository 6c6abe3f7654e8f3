"""The mounts of a confined program: what is read-only there stays so, whatever leads to it, whenever."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from durable_supervisor import Policy
from durable_supervisor.sandbox import namespaces
from tests.policy.confined import Confined

SOURCE = Path(__file__).parents[2] / "src"

# A machine of its own whose mounts are shared, as systemd makes them, and a program confined in there.
# Says what of a file system that is mounted after that is there for the program.
LATER = """
import os, sys
from durable_supervisor.sandbox import kernel, mounts, namespaces
os.chdir("/")
wanted = {"user": not namespaces.probe()["privileged"], "net": False, "mount": True}
assert namespaces.enter(wanted) == {}
kernel.mount(None, "/", mounts.MS_REC | 1 << 20)  # MS_SHARED
ready, mounted = os.pipe(), os.pipe()
if os.fork() == 0:
    assert namespaces.enter(wanted | {"user": False}) == {}
    os.write(ready[1], b"1")
    os.read(mounted[0], 1)
    print(os.listdir(sys.argv[1]), flush=True)
    os._exit(0)
os.read(ready[0], 1)
kernel._libc.mount(b"none", os.fsencode(sys.argv[1]), b"tmpfs", 0, None)
os.mkdir(os.path.join(sys.argv[1], "below"))
os.write(mounted[1], b"1")
os.wait()
print(os.listdir(sys.argv[1]))
"""


async def test_who_stands_among_the_settings_can_write_none(confined: Confined) -> None:
    """The working directory leads beneath the mounts that cover them, unless it is entered anew."""
    if os.geteuid() != 0:
        pytest.skip("needs root: nobody else can write settings")
    ways = "test -w core_pattern || test -w ../kernel/core_pattern || test -w /proc/self/cwd/core_pattern"
    ended = await confined(["sh", "-c", f"pwd; {ways}"], Policy(), cwd="/proc/sys/kernel")
    assert (ended.lines, ended.exit_code) == (["/proc/sys/kernel"], 1)
    assert ended.enforcement["privileges"]["applied"] == "full"


def test_what_is_mounted_later_does_not_arrive(tmp_path: Path) -> None:
    """A new file system could be written: another /proc, or files outside of all grants."""
    if not namespaces.probe()["mount"]:
        pytest.skip("needs a mount namespace")
    done = subprocess.run(
        [sys.executable, "-c", LATER, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=30,
    )
    assert done.stdout.splitlines() == ["[]", "['below']"]


def test_what_can_be_made_does_not_depend_on_where_the_asking_process_stands(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    code = (
        "import os\n"
        "from durable_supervisor.sandbox import namespaces\n"
        f"os.rmdir({str(gone)!r})\n"
        "print(namespaces.probe())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=gone,
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == f"{namespaces.probe()}\n"
