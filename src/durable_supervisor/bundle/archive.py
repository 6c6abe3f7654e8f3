"""Reads a bundle of any origin: every claim it makes is checked, every read is bounded, no name is used."""

from __future__ import annotations

import hashlib
import os
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import IO, Any, Self

from ..model.errors import ErrorCode, Phase, SupervisorError
from .contents import DOCUMENTS, MANIFEST, FormatError, Manifest, Member, parse_log_name
from .strict import object_of

MAX_MEMBERS = 100_000
MAX_DOCUMENT = 32 << 20  # bytes of one JSON document
_MAX_READ = 16 << 20  # bytes that the zip's own directory may ask for at once
_CHUNK = 1 << 20
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_ENCRYPTED = 0x1
_END, _END_SIZE = b"PK\x05\x06", 22  # a zip file's last record, which may have a comment behind it
# What zipfile is known to raise for a file that is none of its own.
_MALFORMED = (
    zipfile.BadZipFile, zlib.error, struct.error, EOFError, IndexError, MemoryError, NotImplementedError,
    OSError, OverflowError, RuntimeError, ValueError,
)  # fmt: skip


class Archive:
    """An open bundle.  Not for use by two threads at once.

    Everything raises SupervisorError ``INVALID_REQUEST`` for what is not a whole and true
    bundle, naming the member at fault.  Digests show damage; who made a bundle they do not show.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        try:
            file = open(path, "rb", opener=_without_waiting)  # noqa: SIM115  closed by `close`
        except (OSError, ValueError) as problem:
            reason = getattr(problem, "strerror", None) or "is not a usable path"
            raise _refused(path, f"cannot be opened: {reason}") from problem
        self._file = file
        try:
            self._open(file)
        except BaseException:
            self.close()
            raise

    def _open(self, file: IO[bytes]) -> None:
        with _judged(self.path):
            if not _is_regular(file):
                raise FormatError("it is not a file")
            self._zip = zipfile.ZipFile(_Bounded(file))
            self._members = _members(self._zip.infolist())
            _check_bounds(file, self._members)
            if MANIFEST not in self._members:
                raise FormatError(f"it holds no {MANIFEST}")
            self.manifest = Manifest.from_dict(self._json(MANIFEST, None))
            _check_listed(self.manifest, self._members)

    def close(self) -> None:
        """Idempotent."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return os.fstat(self._file.fileno()).st_size

    def raw(self, size: int) -> Iterator[bytes]:
        """The file itself, so many bytes of it: one that grows meanwhile takes no more room for that."""
        at = 0
        while at < size:
            data = os.pread(self._file.fileno(), min(_CHUNK, size - at), at)
            if not data:
                raise _refused(self.path, "it became shorter while it was read")
            yield data
            at += len(data)

    def document(self, name: str) -> dict[str, Any]:
        """A member that holds one JSON object."""
        with _judged(self.path):
            return self._json(name, self._claim(name))

    def chunks(self, name: str) -> Iterator[bytes]:
        """A member's content; what is wrong with it is told at its end at the latest."""
        with _judged(self.path):
            yield from self._read(name, self._claim(name))

    def _claim(self, name: str) -> Member:
        claim = self.manifest.members.get(name)
        if claim is None:
            raise FormatError(f"it holds no {name}")
        return claim

    def _json(self, name: str, claim: Member | None) -> dict[str, Any]:
        if self._members[name].file_size > MAX_DOCUMENT:
            raise FormatError(f"{name} is too large")
        return object_of(name, b"".join(self._read(name, claim)))

    def _read(self, name: str, claim: Member | None) -> Iterator[bytes]:
        # Never more than the directory says: zipfile stops there, and judges the CRC.
        digest, size = hashlib.sha256(), 0
        with self._zip.open(self._members[name]) as member:
            while chunk := member.read(_CHUNK):
                size += len(chunk)
                digest.update(chunk)
                yield chunk
        if claim is not None and (size, digest.hexdigest()) != (claim.size, claim.sha256):
            raise FormatError(f"{name} is not what {MANIFEST} says: it is damaged or was changed")


class _Bounded:
    """A file that gives no more at once than any true bundle needs: a directory may claim terabytes."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.seek = file.seek
        self.tell = file.tell

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(min(size, _MAX_READ) if size >= 0 else _MAX_READ)
        if len(data) == _MAX_READ:
            raise FormatError("its directory of members is too large")
        return data

    def seekable(self) -> bool:
        return True


@contextmanager
def _judged(path: str) -> Iterator[None]:
    """Turns whatever a malformed file makes zipfile raise into one typed error."""
    try:
        yield
    except FormatError as problem:
        raise _refused(path, str(problem)) from problem
    except _MALFORMED as problem:
        told = str(problem)[:200] or type(problem).__name__
        raise _refused(path, f"it is no zip file, cut, or damaged ({told})") from problem


def _without_waiting(path: str, flags: int) -> int:
    """A FIFO must not make us wait for its other end, nor a terminal become that of our session."""
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY)


def _is_regular(file: IO[bytes]) -> bool:
    return stat.S_ISREG(os.fstat(file.fileno()).st_mode)


def _members(infos: list[zipfile.ZipInfo]) -> dict[str, zipfile.ZipInfo]:
    if len(infos) > MAX_MEMBERS:
        raise FormatError(f"it holds more than {MAX_MEMBERS} members")
    found: dict[str, zipfile.ZipInfo] = {}
    for info in infos:
        name = info.filename
        if name in found:
            raise FormatError(f"{name[:200]!a} is there twice")
        if info.flag_bits & _ENCRYPTED or info.compress_type not in _METHODS:
            raise FormatError(f"{name[:200]!a} is encrypted or packed in an unknown way")
        if stat.S_IFMT(info.external_attr >> 16) not in (0, stat.S_IFREG):
            raise FormatError(f"{name[:200]!a} is not a plain file")
        found[name] = info
    return found


def _check_bounds(file: IO[bytes], members: dict[str, zipfile.ZipInfo]) -> None:
    """Nothing stands before the first member or behind the zip's end: it is no other kind of file, too."""
    file.seek(-_END_SIZE, os.SEEK_END)
    end = file.read()
    ends = end.startswith(_END) and end.endswith(b"\0\0")  # no comment
    if not ends or min((info.header_offset for info in members.values()), default=0) != 0:
        raise FormatError("there is something before or behind the zip file")


def _check_listed(manifest: Manifest, members: dict[str, zipfile.ZipInfo]) -> None:
    """The manifest lists exactly the members there are, each a name that a bundle may have."""
    for name in manifest.members:
        if name not in members:
            raise FormatError(f"{name[:200]!a} is missing")
    for name, info in members.items():
        if name == MANIFEST:
            continue
        if name not in manifest.members:
            raise FormatError(f"{name[:200]!a} is not in {MANIFEST}")
        if name not in DOCUMENTS and parse_log_name(manifest, name) is None:
            raise FormatError(f"{name[:200]!a} is no name that a bundle holds")
        if info.file_size != manifest.members[name].size:
            raise FormatError(f"{name[:200]!a} has another size than {MANIFEST} says")


def _refused(path: str, problem: str) -> SupervisorError:
    return SupervisorError(
        ErrorCode.INVALID_REQUEST,
        f"bundle: {problem}",
        phase=Phase.READ,
        hint="`durable-supervisor export RUN -o FILE` makes one",
        details={"field": "bundle", "path": path},
    )
