"""What a line of mountinfo says."""

from __future__ import annotations

import os

import pytest

from durable_supervisor.sandbox.mounts import MS_RDONLY, Mount, mounts, parse

NOSUID, NODEV, RELATIME = 2, 4, 1 << 21

LINES = [
    ("36 35 98:0 / /mnt rw,relatime - ext4 /dev/root rw,errors=continue\n", "/mnt", "ext4", RELATIME),
    (
        "41 31 0:38 /a /sys/fs/cgroup ro,nosuid,nodev shared:4 master:1 - cgroup2 cgroup2 rw\n",
        "/sys/fs/cgroup",
        "cgroup2",
        MS_RDONLY | NOSUID | NODEV,
    ),
    (r"9 8 0:1 / /a\040b\134\011c rw - fuse.sshfs x rw", "/a b\\\tc", "fuse.sshfs", 0),
    ("9 8 0:1 / /a/-/b rw unbindable - tmpfs - rw", "/a/-/b", "tmpfs", 0),
]


@pytest.mark.parametrize(("line", "path", "kind", "flags"), LINES)
def test_a_line(line: str, path: str, kind: str, flags: int) -> None:
    mount = parse(line)
    assert (mount.path, mount.kind, mount.flags) == (path, kind, flags)


def test_what_a_mount_shows_and_how_its_file_system_is_set() -> None:
    mount = parse(LINES[1][0])
    assert (mount.root, list(mount.options)) == ("/a", ["rw"])
    assert list(parse(LINES[0][0]).options) == ["rw", "errors=continue"]


def test_those_of_this_process() -> None:
    found = {mount.path: mount for mount in mounts()}
    assert isinstance(found["/proc"], Mount)
    assert found["/proc"].kind == "proc"
    for path, mount in found.items():
        if os.access(path, os.X_OK):
            read_only = os.statvfs(path).f_flag & os.ST_RDONLY
            assert bool(mount.flags & MS_RDONLY) <= bool(read_only), path
