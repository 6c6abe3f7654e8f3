"""The journal's files: private from the moment they exist, and never something else.

Nothing here opens an existing database file: closing a descriptor of it would
drop the locks that SQLite holds in this process (POSIX locks belong to the
process).  Modes are changed by path.
"""

from __future__ import annotations

import contextlib
import os
import stat

from ..model.errors import ErrorCode, Phase, SupervisorError

SUFFIXES = ("", "-wal", "-shm")


def absolute(path: str | os.PathLike[str]) -> str:
    """An absolute path, so that no name can look like a URI or an option to SQLite."""
    return os.path.abspath(os.fsdecode(path))


def read_only_uri(path: str) -> str:
    """The ``file:`` URI of an absolute path, any bytes in its name, for reading only.

    SQLite makes a -shm file even to read.  Where it cannot (a read-only mount, a
    backup) and no -wal holds newer commits, the file is read as one that nobody changes.
    """
    uri = _uri(path) + "?mode=ro"
    # By the effective ids, and capabilities, that SQLite's own open will have.
    writable = os.access(os.path.dirname(path), os.W_OK, effective_ids=os.access in os.supports_effective_ids)
    if writable or os.path.lexists(path + "-wal"):
        return uri
    return unchanging_uri(path)


def unchanging_uri(path: str) -> str:
    """The same for a file that nobody changes meanwhile: it needs no -shm file, and sees no -wal file."""
    return _uri(path) + "?mode=ro&immutable=1"


def at_rest(path: str) -> tuple[int, ...] | None:
    """Tells one content of a journal from another, where the file itself is all of it; None elsewhere."""
    try:
        if os.lstat(path + "-wal").st_size:
            return None
    except FileNotFoundError:
        pass
    except OSError:
        return None
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


def check(path: str) -> bool:
    """Does the journal exist?  Raises ``STATE_DIR_REFUSED`` for links, devices and others' files."""
    found = False
    for suffix in SUFFIXES:
        try:
            status = os.lstat(path + suffix)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise _refused(path + suffix, f"cannot be looked at ({error.strerror})") from error
        if not stat.S_ISREG(status.st_mode):
            raise _refused(path + suffix, "is not a regular file")
        if status.st_uid != os.geteuid():
            raise _refused(path + suffix, "belongs to another user")
        found = found or not suffix
    return found


def create(path: str) -> None:
    """An empty journal of mode 0600, durable in its directory (made 0700 if missing).

    SQLite gives -wal and -shm the mode of the database file, whatever the umask.
    """
    parent = os.path.dirname(path)
    try:
        _make_directory(parent)
        for suffix in SUFFIXES[1:]:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path + suffix)  # of a journal that was deleted: never to be replayed into this one
        descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            os.fchmod(descriptor, 0o600)
        finally:
            os.close(descriptor)  # new by O_EXCL: SQLite holds no lock on it yet
        _sync_directory(parent)
    except OSError as error:
        raise _refused(path, f"cannot be made ({error.strerror})") from error


def narrow(path: str) -> None:
    """Take back rights that a copy or a restore gave to others."""
    for suffix in SUFFIXES:
        try:
            if stat.S_IMODE(os.lstat(path + suffix).st_mode) != 0o600:
                os.chmod(path + suffix, 0o600)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise _refused(path + suffix, f"cannot be made private ({error.strerror})") from error


def _make_directory(parent: str) -> None:
    if os.path.isdir(parent):
        return
    os.makedirs(os.path.dirname(parent), exist_ok=True)
    try:
        os.mkdir(parent, 0o700)
    except FileExistsError:
        return
    os.chmod(parent, 0o700)
    _sync_directory(os.path.dirname(parent))


def _sync_directory(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _refused(path: str, problem: str) -> SupervisorError:
    return SupervisorError(
        ErrorCode.STATE_DIR_REFUSED,
        f"{os.path.basename(path)} {problem}",
        phase=Phase.OPEN,
        hint="choose another state directory, or move this file away",
        details={"file": os.path.basename(path)},
    )


def _uri(path: str) -> str:
    """Percent-encoded, as RFC 3986 has it."""
    # `urllib.parse` would bring `ipaddress` along: together a sixth of a bare interpreter's start.
    plain = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~/"
    return "file://" + "".join(chr(byte) if byte in plain else f"%{byte:02X}" for byte in os.fsencode(path))
