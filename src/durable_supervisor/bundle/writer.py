"""Writes a zip file front to back, the same bytes for the same members: no clock, no user, no seeking."""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Callable, Iterable
from typing import BinaryIO, cast

from .contents import Member

_LEVEL = 6


class _Forward:
    """Only forwards: so the bytes are the same in a file and in a pipe, and none is written twice."""

    def __init__(self, write: Callable[[bytes], object]) -> None:
        self._write = write

    def write(self, data: bytes) -> int:
        try:
            self._write(bytes(data))
        except BaseException:
            # The zip is broken off.  ZipFile still writes its end when it is collected, where an
            # error could only be printed, as a traceback.
            self._write = len
            raise
        return len(data)

    def flush(self) -> None:
        """Whoever gave ``write`` keeps no buffer."""


class BundleWriter:
    """Adds members one after the other; ``members`` has their sizes and digests so far.

    ``write`` takes all bytes that it is given, or raises.  `finish` at the end.
    """

    def __init__(self, write: Callable[[bytes], object]) -> None:
        sink = cast(BinaryIO, _Forward(write))
        self._zip = zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED, compresslevel=_LEVEL)
        self.members: dict[str, Member] = {}

    def add(self, name: str, chunks: Iterable[bytes]) -> None:
        """A member of any size, in constant memory."""
        digest, size = hashlib.sha256(), 0
        # Opened by name it is dated 1980 and 0600, whoever writes it and when.  Its size is not
        # known yet: the 64-bit form holds any.
        with self._zip.open(name, "w", force_zip64=True) as member:
            for chunk in chunks:
                member.write(chunk)
                digest.update(chunk)
                size += len(chunk)
        self.members[name] = Member(size, digest.hexdigest())

    def finish(self) -> None:
        """Write the directory of members."""
        self._zip.close()
