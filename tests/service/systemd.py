"""A real systemd, as the first process of namespaces of its own: it starts our unit and nothing else."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.cli.helpers import SOURCE
from tests.service.daemons import until
from tests.support import eventually

SYSTEMD = "/lib/systemd/systemd"
UNIT = "durable-supervisor.service"

# What it finds are stubs of the targets that every unit needs, our unit, and a target that wants it.
_BOOT = """
set -e
mount -t proc proc /proc
mount -o bind /proc/sys /proc/sys
mount -o remount,ro,bind /proc/sys
umount -R /sys/fs/cgroup
mount -t cgroup2 none /sys/fs/cgroup
for place in /run /etc/systemd/system /lib/systemd/system; do mount -t tmpfs tmpfs $place; done
for target in sysinit basic shutdown; do
  printf '[Unit]\\nDefaultDependencies=no\\n' > /lib/systemd/system/$target.target
done
cp -r "$1"/units/. /etc/systemd/system/
export container=other
exec {systemd} --system --unit=test.target --log-target=null --show-status=no
"""


class Systemd:
    """``systemctl`` in there, and the service's log."""

    def __init__(self, folder: Path, pid: int) -> None:
        self.folder = folder
        self._pid = pid

    def ctl(self, *words: str) -> str:
        done = subprocess.run(
            ["nsenter", "-t", str(self._pid), "-m", "-p", "-C", "-u", "-i", "systemctl", *words],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, (words, done.stdout, done.stderr)
        return done.stdout

    def show(self, *names: str) -> dict[str, str]:
        text = self.ctl("show", UNIT, f"--property={','.join(names)}")
        return dict(line.split("=", 1) for line in text.splitlines())

    def until(self, **wanted: str) -> None:
        """Wait; its bus is not there from the first moment."""
        eventually(lambda: self.show(*wanted) == wanted)


def unified_cgroups() -> Path | None:
    """Where this machine has its cgroup2 hierarchy, if it lets us make groups in it."""
    for path in (Path("/sys/fs/cgroup/unified"), Path("/sys/fs/cgroup")):
        if (path / "cgroup.controllers").exists() and os.access(path, os.W_OK):
            return path
    return None


@contextmanager
def booted(folder: Path, unit: str, changes: str) -> Iterator[Systemd]:
    """``changes`` is a drop-in for the unit."""
    units = folder / "units"
    (units / f"{UNIT}.d").mkdir(parents=True)
    (units / UNIT).write_text(unit)
    output = f"StandardOutput=append:{folder}/log\nStandardError=append:{folder}/log\n"
    (units / f"{UNIT}.d" / "test.conf").write_text(
        f"[Service]\nEnvironment=PYTHONPATH={SOURCE}\n{output}{changes}\n"
    )
    (units / "test.target").write_text(f"[Unit]\nDefaultDependencies=no\nWants={UNIT}\n")
    (folder / "boot.sh").write_text(_BOOT.format(systemd=SYSTEMD))
    top = unified_cgroups()
    assert top is not None
    group = top / f"dsup-test-{os.urandom(4).hex()}"
    group.mkdir()
    enter = f"echo $$ > {group}/cgroup.procs; exec unshare --fork --kill-child --propagation private"
    process = subprocess.Popen(
        ["sh", "-c", f'{enter} --pid --mount --cgroup --uts --ipc sh "$1"/boot.sh "$1"', "sh", str(folder)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield Systemd(folder, until(lambda: _first_child(process.pid), "systemd is there"))
    finally:
        process.kill()  # and with the first process of a pid namespace all others in it end
        process.wait()
        until(lambda: _removed(group), "its control groups are empty")


def _first_child(pid: int) -> int | None:
    with contextlib.suppress(OSError):
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            if Path(f"/proc/{child}/comm").read_text() == "systemd\n":
                return int(child)
    return None


def _removed(group: Path) -> bool:
    for folder in sorted((path for path in group.rglob("*") if path.is_dir()), reverse=True):
        with contextlib.suppress(OSError):
            folder.rmdir()
    with contextlib.suppress(OSError):
        group.rmdir()
    return not group.exists()
