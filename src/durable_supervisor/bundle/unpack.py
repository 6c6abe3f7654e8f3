"""A bundle's log as files again; their names are made here, never taken over."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable

from ..model.errors import ErrorCode, Phase, SupervisorError
from ..runlog.files import create_file, make_dir
from ..runlog.paths import RunPaths
from .archive import Archive
from .contents import parse_log_name

FREE_BYTES = 256 << 20  # left alone on the disk that a log is unpacked to


def unpack(archive: Archive, folder: str, check: Callable[[], None] = lambda: None) -> RunPaths:
    """Write every segment below ``folder``, private, as a state directory's ``runs`` would have it.

    Nothing is synced.  ``check`` raises where nobody wants the rest any more.  Raises ``INVALID_REQUEST`` as
    `Archive`, ``NO_SPACE``; OSError where a file cannot be written.
    """
    manifest = archive.manifest
    logs = {name: found for name in manifest.members if (found := parse_log_name(manifest, name))}
    check_room(archive.path, folder, sum(manifest.members[name].size for name in logs))
    paths = RunPaths(folder, manifest.shard, manifest.run_id)
    make_dir(paths.dir)
    for name, (attempt, key) in logs.items():
        path = paths.segment_file(attempt, key)
        make_dir(os.path.dirname(path))
        with open(create_file(path), "wb") as file:
            for chunk in archive.chunks(name):
                check()
                file.write(chunk)
    return paths


def check_room(path: str, folder: str, size: int) -> None:
    """Raises ``NO_SPACE`` where ``size`` bytes, by the bundle's own word, would crowd the folder's disk."""
    free = shutil.disk_usage(folder).free
    if size > free - FREE_BYTES:
        raise SupervisorError(
            ErrorCode.NO_SPACE,
            f"what is in the bundle takes {size} bytes, more than there is to spare",
            phase=Phase.READ,
            hint=f"free room on the disk of {os.fsencode(folder).decode('ascii', 'backslashreplace')}; "
            "for reading a bundle, TMPDIR may name another",
            details={"path": path, "bytes": size, "free": free},
        )
