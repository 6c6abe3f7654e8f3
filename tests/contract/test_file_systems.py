"""On a network file system locks and fsync cannot be relied on: no state directory is made there."""

from __future__ import annotations

from pathlib import Path

import pytest

from durable_supervisor import ErrorCode
from durable_supervisor.supervisor.state import file_systems
from tests.contract.hosts import open_error

MOUNTS = """\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
31 22 0:26 / /home rw - nfs4 server:/export/home rw,vers=4.2
32 22 0:27 / /mnt/with\\040space rw - cifs //server/share rw
33 22 0:28 / /mnt/b\\303\\274ro rw - fuse.sshfs me@server:/ rw
34 31 0:29 / /home/me/local rw - btrfs /dev/sdb rw
35 22 0:30 / /over rw - ext4 /dev/sdc rw
36 35 0:31 / /over rw - nfs server:/x rw
37 22 0:32 / /mnt/back\\134slash rw shared:3 master:2 - 9p drvfs rw
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/var/lib/x", "ext4"),
        ("/home/me/state", "nfs4"),
        ("/homeless/state", "ext4"),
        ("/home", "nfs4"),
        ("/mnt/with space/state", "cifs"),
        ("/mnt/büro/state", "fuse.sshfs"),
        ("/home/me/local/state", "btrfs"),
        ("/over/state", "nfs"),
        ("/mnt/back\\slash/state", "9p"),
    ],
)
def test_the_file_system_of_a_path(path: str, kind: str) -> None:
    assert file_systems.file_system_of(path, MOUNTS.encode()) == kind


@pytest.mark.parametrize("text", [b"", b"nonsense\n", b"1 2 3\n - \n", b"22 1 254:0 / / rw - \n", b"\xff\n"])
def test_a_mount_table_that_cannot_be_read_refuses_nothing(text: bytes) -> None:
    assert file_systems.file_system_of("/somewhere", text) not in file_systems.NETWORK_FILE_SYSTEMS


def test_every_network_file_system_is_named() -> None:
    network = {"nfs", "nfs4", "cifs", "smb3", "9p", "ceph", "lustre", "fuse.sshfs", "afs", "glusterfs"}
    assert network <= file_systems.NETWORK_FILE_SYSTEMS
    assert not {"ext4", "xfs", "btrfs", "tmpfs", "overlay", "zfs"} & file_systems.NETWORK_FILE_SYSTEMS


async def test_a_network_file_system_is_refused_before_anything_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mount table is the one thing that cannot be real here."""
    table = f"22 1 254:0 / / rw - ext4 /dev/vda rw\n23 22 0:9 / {tmp_path} rw - nfs4 server:/x rw\n"
    monkeypatch.setattr(file_systems, "mount_table", lambda: table.encode())
    error = await open_error(tmp_path / "state", ErrorCode.STATE_DIR_REFUSED)
    assert "nfs4" in error.message
    assert list(tmp_path.iterdir()) == []
