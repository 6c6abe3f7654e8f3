"""Walk one segment record by record; find the next good one behind damage."""

from __future__ import annotations

import os

from durable_supervisor.model.events import ALL_KINDS, Event, Kind

from .format import (
    EVENT,
    HEADER_SIZE,
    MAX_DATA,
    MAX_META,
    OUTPUT,
    RECORD_MAGIC,
    RECORD_SIZE,
    SEGMENT_MAGIC,
    STREAMS,
    SYNC,
    HeaderError,
    RecordFields,
    SegmentHeader,
    body_holds,
    decode_header,
    decode_json,
    decode_record_head,
    header_length,
)

TYPE_CHECKING = False  # importing typing would cost every worker's start some milliseconds
if TYPE_CHECKING:
    from typing import TypeGuard

_WINDOW = 272 * 1024  # a record of the most output that a worker reads at once
_NEAR = 16 * 1024  # this much is read faster than it is halved
_FIRST_WINDOW = 16 * 1024  # a small run's whole log in one read
_PREFIX, _SUFFIX = b'{"offset":', b"}"
_MOST_DIGITS = 18  # of an offset: all that are fewer than 2**63
_LONGEST_KIND = 64


class Record:
    """One verified record.  ``end`` is the file offset right behind it."""

    __slots__ = (
        "data", "detail", "elapsed_ns", "end", "flags", "kind", "meta", "offset", "rtype", "seq", "wall_ns",
    )  # fmt: skip

    def __init__(
        self, fields: RecordFields, offset: int, meta: bytes, data: bytes, kind: str,
        detail: dict[str, object],
    ) -> None:  # fmt: skip
        self.rtype, self.flags, _, _, self.seq, self.wall_ns, self.elapsed_ns, _ = fields
        self.offset = offset
        self.end = offset + RECORD_SIZE + len(meta) + len(data)
        self.meta = meta
        self.data = data
        self.kind = kind
        self.detail = detail

    @property
    def first_seq(self) -> int:
        """The first seq this record answers for: its own, unless it stands for a dropped range."""
        if self.kind == Kind.OUTPUT_DROPPED:
            first = self.detail.get("first_seq")
            if isinstance(first, int) and 0 < first <= self.seq:
                return first
        return self.seq

    def event(self) -> Event:
        return Event(self.seq, self.wall_ns, self.elapsed_ns, self.kind, self.detail, self.data)


class Damage:
    """Bytes that are no record: ``offset``, ``length``.

    ``at_tail``: nothing good follows in this file.  ``torn``: just a record (or
    header) that was not written to its end, which a live log may still complete.
    """

    __slots__ = ("at_tail", "length", "offset", "torn")

    def __init__(self, offset: int, length: int, *, at_tail: bool, torn: bool) -> None:
        self.offset = offset
        self.length = length
        self.at_tail = at_tail
        self.torn = torn

    def __repr__(self) -> str:
        return f"Damage({self.offset}+{self.length}{' torn' if self.torn else ''})"


class Scanner:
    """Reads an open segment from ``offset`` on; keeps no lock and never writes.

    Damage at the tail is reported but not passed: a later `step` looks again,
    since the writer may have completed it.
    """

    __slots__ = ("_base", "_buffer", "_fd", "_salt", "offset", "size")

    def __init__(self, fd: int, salt: int, offset: int, size: int) -> None:
        self._fd = fd
        self._salt = salt
        self.offset = offset
        self.size = size
        self._buffer = b""
        self._base = 0

    def refresh(self) -> None:
        """Look at the file's size again and forget what was read of its tail."""
        self.size = os.fstat(self._fd).st_size
        self._buffer = b""

    def header(self) -> SegmentHeader | None:
        """Read the segment header and stand behind it; None (and no move) when it is damaged."""
        start = self._bytes(0, HEADER_SIZE)
        length = min(header_length(start), self.size)
        try:
            header, length = decode_header(self._bytes(0, length))
        except HeaderError:
            return None
        self.offset = length
        return header

    def is_blank(self) -> bool:
        """Is there nothing in it but zeros, and what one made ahead begins with (see `ready`)?

        A power loss may leave that: its block, its size and its name were on the disk, and its header not.
        """
        if self.size > _FIRST_WINDOW:
            return False
        return not self._bytes(0, self.size).removeprefix(SEGMENT_MAGIC).strip(b"\0")

    def approach(self, seq: int) -> None:
        """Stand at a record whose seq is not above ``seq``, near it, without reading what lies before.

        Records find themselves (see `format`), so halving the file needs no index.  Only
        a step closer where that cannot be done: a long record, damage.
        """
        low, high = self.offset, self.size
        while high - low > _NEAR:
            middle = (low + high) // 2
            found = self._resync(middle, _NEAR)
            if found is None or found >= high or self._seq_at(found) > seq:
                high = middle
            else:
                low = found
        self.offset = low

    def _seq_at(self, offset: int) -> int:
        """The seq of the good record that begins there; reads only its header."""
        fields = decode_record_head(self._salt, offset, os.pread(self._fd, RECORD_SIZE, offset), 0)
        return 0 if fields is None else fields[4]

    def step(self) -> Record | Damage | None:
        """The next record or stretch of damage; None at the end of the file."""
        offset = self.offset
        if offset >= self.size:
            return None
        fields = self._head(offset)
        if fields is None:
            return self._damage(offset)
        end = offset + RECORD_SIZE + fields[2] + fields[3]
        if end > self.size:
            self._buffer = b""
            return Damage(offset, self.size - offset, at_tail=True, torn=True)
        record = self._body(offset, fields)
        if record is None:
            # The record's own header is good, so its length is: go on right behind it.
            at_tail = end == self.size
            if not at_tail:
                self.offset = end
            return Damage(offset, end - offset, at_tail=at_tail, torn=False)
        self.offset = end
        return record

    def _bytes(self, offset: int, count: int) -> bytes:
        at = self._load(offset, count)
        return self._buffer[at : at + count]

    def _load(self, offset: int, count: int) -> int:
        """Have these bytes in the buffer, as far as the file has them; where they begin there."""
        at = offset - self._base
        if at < 0 or at + count > len(self._buffer):
            window = min(
                _WINDOW if offset else _FIRST_WINDOW, self.size - offset
            )  # no room for what is not there
            self._buffer = os.pread(self._fd, max(count, window), offset)
            self._base = offset
            at = 0
        return at

    def _head(self, offset: int) -> RecordFields | None:
        fields = decode_record_head(self._salt, offset, self._bytes(offset, RECORD_SIZE), 0)
        if fields is None or fields[2] > MAX_META or fields[3] > MAX_DATA:
            return None
        return fields

    def _body(self, offset: int, fields: RecordFields) -> Record | None:
        at = self._load(offset + RECORD_SIZE, fields[2] + fields[3])
        return _record(self._salt, offset, fields, self._buffer, at)

    def _damage(self, offset: int) -> Damage:
        left = self.size - offset
        found = self._resync(offset + 1)
        if found is None:
            torn = self._torn(offset, left)
            self._buffer = b""
            return Damage(offset, left, at_tail=True, torn=torn)
        self.offset = found
        return Damage(offset, found - offset, at_tail=False, torn=False)

    def _torn(self, offset: int, left: int) -> bool:
        """Is what is left the beginning of a record header (or, at 0, of a segment header)?"""
        start = self._bytes(offset, min(left, HEADER_SIZE if offset == 0 else RECORD_SIZE))
        if offset == 0:
            length = header_length(start)
            return SEGMENT_MAGIC.startswith(start[:8]) and (left < HEADER_SIZE or left < length)
        return left < RECORD_SIZE and RECORD_MAGIC.startswith(start[: len(RECORD_MAGIC)])

    def _resync(self, offset: int, stride: int = _WINDOW) -> int | None:
        """The offset of the next good record header, byte by byte from ``offset``, in reads of ``stride``."""
        while offset + RECORD_SIZE <= self.size:
            window = os.pread(self._fd, stride, offset)
            at = window.find(RECORD_MAGIC)
            while at >= 0 and at + RECORD_SIZE <= len(window):
                if decode_record_head(self._salt, offset + at, window, at) is not None:
                    return offset + at
                at = window.find(RECORD_MAGIC, at + 1)
            if at >= 0 and at + RECORD_SIZE > len(window):
                if at == 0 or offset + len(window) >= self.size:
                    return None
                offset += at
            elif len(window) < len(RECORD_MAGIC):
                return None
            else:
                offset += len(window) - len(RECORD_MAGIC) + 1  # the magic may lie across two windows
        return None


def record_in(data: bytes, at: int, salt: int, offset: int) -> Record | None:
    """The good record that begins at ``data[at:]``, which lies at ``offset`` of its file, if there is one."""
    fields = decode_record_head(salt, offset, data, at)
    return None if fields is None else _record(salt, offset, fields, data, at + RECORD_SIZE)


def _record(salt: int, offset: int, fields: RecordFields, data: bytes, at: int) -> Record | None:
    """Of the header's ``fields``, and what follows at ``data[at:]``; None where that is cut or no good."""
    rtype, flags, meta_length, data_length = fields[:4]
    middle = at + meta_length
    meta, body = data[at:middle], data[middle : middle + data_length]
    if len(body) != data_length or not body_holds(salt, fields[7], meta, body):
        return None
    if rtype == OUTPUT:
        stream = STREAMS[1] if flags == 2 else STREAMS[0]
        detail: dict[str, object] = {"stream": stream, "offset": _output_offset(meta)}
        return Record(fields, offset, meta, body, Kind.OUTPUT, detail)
    form = decode_json(meta)
    if form is None:
        return None
    if rtype == SYNC:
        return Record(fields, offset, meta, body, "", form)
    kind, inner = form.get("kind"), form.get("detail")
    if rtype != EVENT or not is_kind(kind) or not isinstance(inner, dict):
        return None
    return Record(fields, offset, meta, body, kind, inner)


def _output_offset(meta: bytes) -> int:
    if meta.startswith(_PREFIX) and meta.endswith(_SUFFIX):
        digits = meta[len(_PREFIX) : -1]
        if digits.isdigit() and len(digits) <= _MOST_DIGITS:
            return int(digits)
    form = decode_json(meta) or {}
    value = form.get("offset")
    return value if isinstance(value, int) and abs(value) < 10**_MOST_DIGITS else 0


def is_kind(word: object) -> TypeGuard[str]:
    """May it stand for what an event is, also in a version to come?  Readers print and send it as it is.

    Output has records of its own.
    """
    if not isinstance(word, str) or len(word) > _LONGEST_KIND or word == Kind.OUTPUT:
        return False
    return word in ALL_KINDS or (word.isascii() and word.replace(".", "").replace("_", "").isalnum())
