"""``backup.json``: what a backup was when it was made."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .. import __version__
from ..journal.copying import CopyMark
from ..model.backup import MANIFEST, BackupReport
from ..model.events import iso_time
from ..model.schema import schema_name
from ..runlog.files import create_file, fsync_dir, open_regular, write_all

FORMAT = 1
_CHUNK = 1 << 20
_MOST = 1 << 30  # bytes; some millions of files


@dataclass(frozen=True, slots=True)
class Digest:
    """Size in bytes and SHA-256 digest (hex) of a file."""

    size: int
    sha256: str


def digest_of(path: str, check: Callable[[], None]) -> Digest:
    """Reads the file.  Raises OSError, `NotRegularError`."""
    fd, _ = open_regular(path)
    digest = hashlib.sha256()
    try:
        at = 0
        while data := os.pread(fd, _CHUNK, at):
            check()
            digest.update(data)
            at += len(data)
    finally:
        os.close(fd)
    return Digest(at, digest.hexdigest())


def write(path: str, report: BackupReport, mark: CopyMark, files: dict[str, Digest]) -> None:
    """The last file of a backup: all others are synced already.  Raises OSError."""
    form = {
        "schema": schema_name("backup-manifest"),
        "format": FORMAT,
        "product": "durable-supervisor",
        "version": __version__,
        "directory_id": report.directory_id,
        "original": {"directory_id": mark.original, "through": mark.through},
        "made_at": iso_time(mark.at_ns),
        "made_ns": mark.at_ns,
        "runs": report.runs,
        "collected": report.collected,
        "unsettled": report.unsettled,
        "not_retried": report.not_retried,
        "left_out": report.left_out,
        "files": {name: {"size": one.size, "sha256": one.sha256} for name, one in files.items()},
    }
    text = json.dumps(form, indent=1, allow_nan=False) + "\n"
    write_file(os.path.join(path, MANIFEST), text.encode("ascii"))
    for folder, _, _ in os.walk(path):
        fsync_dir(folder)


def write_file(path: str, content: bytes) -> None:
    """A new file, on the disk when this returns.  Raises OSError."""
    fd = create_file(path)
    try:
        _, number = write_all(fd, [content], 0, len(content))
        if number:
            raise OSError(number, os.strerror(number), path)
        os.fsync(fd)
    finally:
        os.close(fd)


def is_unused(path: str) -> bool:
    """Is it a backup that nobody has opened to work in yet?  Then nothing in it changes."""
    owned = os.path.lexists(os.path.join(path, "supervisor.lock"))
    return os.path.lexists(os.path.join(path, MANIFEST)) and not owned


def read(path: str) -> dict[str, Digest] | None:
    """The files of a backup, by name; None for a directory that did not begin as one.

    Raises ValueError (RecursionError) for something else under that name, OSError, `NotRegularError`.
    """
    try:
        fd, size = open_regular(os.path.join(path, MANIFEST))
    except FileNotFoundError:
        return None
    with open(fd, "rb") as file:
        if size > _MOST:
            raise ValueError("larger than any manifest")
        return _files(json.loads(file.read(size)))


def _files(form: Any) -> dict[str, Digest]:
    try:
        if form["product"] != "durable-supervisor" or form["format"] > FORMAT:
            raise ValueError("not the manifest of a backup that this version knows")
        said = {name: Digest(int(one["size"]), str(one["sha256"])) for name, one in form["files"].items()}
    except (KeyError, TypeError, AttributeError) as problem:
        raise ValueError("not the manifest of a backup") from problem
    outside = [name for name in said if name != os.path.normpath(name) or name.startswith(("/", "../"))]
    if outside:
        raise ValueError("it names files outside of the backup")
    return said
