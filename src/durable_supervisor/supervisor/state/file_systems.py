"""Which file system a path lies on, and whether a state directory may lie there."""

from __future__ import annotations

import os
import re

# Locks and fsync cannot be relied on there.
NETWORK_FILE_SYSTEMS = frozenset({
    "nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "glusterfs", "lustre", "gpfs", "beegfs",
    "fuse.sshfs", "fuse.glusterfs", "fuse.ceph", "fuse.s3fs", "fuse.rclone", "ncpfs", "ocfs2", "davfs",
})  # fmt: skip

_OCTAL = rb"\\([0-7]{3})"  # how mountinfo writes spaces and backslashes


def file_system(path: str) -> str:
    """The type of the file system that holds ``path``, existing or not; '' if unknown."""
    return file_system_of(os.path.realpath(path), mount_table())


def mount_table() -> bytes:
    """What this process sees mounted; empty where /proc does not tell."""
    try:
        with open("/proc/self/mountinfo", "rb") as file:
            return file.read()
    except OSError:
        return b""


def file_system_of(path: str, table: bytes) -> str:
    """The type of the innermost mount around an absolute path, by a ``mountinfo`` table (proc(5))."""
    real, best, kind = os.fsencode(path), b"", b""
    for line in table.splitlines():
        left, _, right = line.partition(b" - ")
        fields = left.split(b" ")
        if len(fields) < 5:
            continue
        mount = fields[4] if b"\\" not in fields[4] else _without_escapes(fields[4])
        inside = real == mount or real.startswith(mount.rstrip(b"/") + b"/")
        if inside and len(mount) >= len(best):  # a later line may cover an earlier one
            best, kind = mount, right.split(b" ")[0]
    return kind.decode(errors="replace")


def _without_escapes(mount: bytes) -> bytes:
    return re.sub(_OCTAL, lambda found: bytes([int(found[1], 8) & 0xFF]), mount)
