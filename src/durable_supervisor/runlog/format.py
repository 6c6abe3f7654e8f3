"""The bytes of a run log: segment header and record framing.  Format 1, little endian.

Segment header, then records back to back until the end of the file:

    header   magic 8s | format u16 | flags u16 | length u32 | json length u32 | crc u32 | json
    record   magic 4s | type u8 | flags u8 | 0 u16 | meta length u32 | data length u32 |
             seq u64 | wall ns u64 | elapsed ns u64 | body crc u32 | head crc u32 | meta json | data

Both CRCs of a record are seeded with a salt that follows from the file's *name*
(run id, attempt, first seq), so a damaged header loses no record; the head CRC
also with the record's own offset.  So nothing that a program prints, not even a
copy of its own log, passes for a record when a reader looks for the next good
one behind damage.
"""

from __future__ import annotations

import json
from struct import Struct, error
from zlib import crc32

from ..model.compact import compact_encoder

FORMAT = 1
SEGMENT_MAGIC = b"DSVLOG\r\n"
RECORD_MAGIC = b"\xabDR\x1e"

EVENT = 1  # meta {"kind", "detail"}
OUTPUT = 2  # flags 1 stdout, 2 stderr; meta {"offset"}; data: the bytes
SYNC = 3  # meta {"synced"}: all bytes of this file before that offset are on the disk; has no seq of its own

STREAMS = ("stdout", "stderr")
MAX_META = 16 << 20
MAX_DATA = 16 << 20
MAX_DEPTH = 64  # of JSON; ours has a tenth of it, and what nests deeper can be read and then not be written
MAX_VALUES = 1 << 20  # of one record; each may take many times its text in memory

_SEGMENT = Struct("<8sHHIII")
RECORD = Struct("<4sBBHIIQQQII")
_RECORD_HEAD = Struct("<4sBBHIIQQQI")  # all but the head CRC
_CRC = Struct("<I")
_OFFSET = Struct("<Q")
HEADER_SIZE = _SEGMENT.size
RECORD_SIZE = RECORD.size
_HEAD_SIZE = _RECORD_HEAD.size

_encode = compact_encoder(allow_nan=False)
_INFINITY = float("inf")


def _no_number(word: str) -> None:
    raise ValueError(f"{word} is no number")  # json takes NaN and Infinity; no writer of ours writes them


def _finite(text: str) -> float:
    number = float(text)
    if abs(number) == _INFINITY:
        raise ValueError("a number beyond all numbers")  # as 1e999 is
    return number


_decoder = json.JSONDecoder(parse_constant=_no_number, parse_float=_finite)

RecordFields = tuple[int, int, int, int, int, int, int, int]
"""type, flags, meta length, data length, seq, wall ns, elapsed ns, body CRC"""


class HeaderError(ValueError):
    """Not a segment header that this code can read."""


class SegmentHeader:
    """What a segment says about itself.

    ``first_seq`` is the seq of the first record it will hold; ``generation`` counts
    repairs; ``created_ns`` is Unix nanoseconds.  ``detail`` of an attempt's first
    segment is the request (serial, request_id, owner, digests …); of a further
    one ``{"facts": …}``, the lifecycle so far (see `facts`).
    """

    __slots__ = (
        "attempt", "boot_id", "created_ns", "detail", "directory_id", "first_seq", "generation", "run_id",
    )  # fmt: skip

    def __init__(
        self,
        directory_id: str,
        run_id: str,
        attempt: int,
        first_seq: int,
        generation: int,
        boot_id: str,
        created_ns: int,
        detail: dict[str, object],
    ) -> None:
        self.directory_id = directory_id
        self.run_id = run_id
        self.attempt = attempt
        self.first_seq = first_seq
        self.generation = generation
        self.boot_id = boot_id
        self.created_ns = created_ns
        self.detail = detail

    def __repr__(self) -> str:
        return f"SegmentHeader({self.run_id}.a{self.attempt}, first_seq={self.first_seq})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SegmentHeader) and self.encode() == other.encode()

    def __hash__(self) -> int:
        return hash((self.run_id, self.attempt, self.first_seq, self.generation))

    def encode(self) -> bytes:
        """The bytes at the start of a segment.  Raises ValueError when ``detail`` is no JSON."""
        text = encode_json(
            {
                "attempt": self.attempt,
                "boot_id": self.boot_id,
                "created_ns": self.created_ns,
                "detail": self.detail,
                "directory_id": self.directory_id,
                "first_seq": self.first_seq,
                "generation": self.generation,
                "run_id": self.run_id,
            }
        )
        fields = (SEGMENT_MAGIC, FORMAT, 0, HEADER_SIZE + len(text), len(text))
        bare = _SEGMENT.pack(*fields, 0)
        return _SEGMENT.pack(*fields, crc32(text, crc32(bare))) + text


def decode_header(data: bytes) -> tuple[SegmentHeader, int]:
    """The header and its length in bytes.

    Raises `HeaderError` when ``data`` is shorter than the header or is damaged, or
    when the format is newer than this code.
    """
    try:
        magic, version, flags, length, json_length, crc = _SEGMENT.unpack_from(data)
    except error:
        raise HeaderError("shorter than a header") from None
    if magic != SEGMENT_MAGIC:
        raise HeaderError("not a run log")
    text = data[HEADER_SIZE : HEADER_SIZE + json_length]
    bare = _SEGMENT.pack(magic, version, flags, length, json_length, 0)
    if len(text) != json_length or length != HEADER_SIZE + json_length or crc != crc32(text, crc32(bare)):
        raise HeaderError("the header is cut or damaged")
    if version != FORMAT:
        raise HeaderError(f"log format {version} is newer than this program ({FORMAT})")
    return _header_of(decode_json(text)), length


def header_length(data: bytes) -> int:
    """The length that the first `HEADER_SIZE` bytes announce; 0 when they are no header.  Unverified."""
    if len(data) < HEADER_SIZE or not data.startswith(SEGMENT_MAGIC):
        return 0
    length: int = _SEGMENT.unpack_from(data)[3]
    return length


def _header_of(form: dict[str, object] | None) -> SegmentHeader:
    if form is None:
        raise HeaderError("the header is not a JSON object")
    detail = form.get("detail")
    if not isinstance(detail, dict):
        raise HeaderError("a header field has the wrong type")
    return SegmentHeader(
        _text(form.get("directory_id")),
        _text(form.get("run_id")),
        _whole(form.get("attempt")),
        _whole(form.get("first_seq")),
        _whole(form.get("generation")),
        _text(form.get("boot_id")),
        _whole(form.get("created_ns")),
        detail,
    )


def _whole(value: object) -> int:
    if not isinstance(value, int):
        raise HeaderError("a header field has the wrong type")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise HeaderError("a header field has the wrong type")
    return value


def salt_of(run_id: str, attempt: int, first_seq: int) -> int:
    """The seed of a segment's CRCs; ``first_seq`` as its name tells it (0: the attempt's first segment)."""
    return crc32(f"{run_id}/{attempt}/{first_seq}".encode())


def encode_record(
    salt: int, offset: int, rtype: int, flags: int, seq: int, wall_ns: int, elapsed_ns: int,
    meta: bytes, data: bytes,
) -> bytes:  # fmt: skip
    """A record's header and meta; the caller writes ``data`` right behind (it is not copied)."""
    body_crc = crc32(data, crc32(meta, salt))
    head = _RECORD_HEAD.pack(
        RECORD_MAGIC, rtype, flags, 0, len(meta), len(data), seq, wall_ns, elapsed_ns, body_crc
    )
    return head + _CRC.pack(crc32(head, crc32(_OFFSET.pack(offset), salt))) + meta


def decode_record_head(salt: int, offset: int, data: bytes, at: int) -> RecordFields | None:
    """The fields of the record header at ``data[at:]``, which lies at ``offset`` of its file.

    None unless it is whole and its CRC holds: then its lengths can be trusted.
    """
    if not data.startswith(RECORD_MAGIC, at) or len(data) - at < RECORD_SIZE:
        return None
    _, rtype, flags, _, meta_length, data_length, seq, wall_ns, elapsed_ns, body, crc = RECORD.unpack_from(
        data, at
    )
    if crc != crc32(data[at : at + _HEAD_SIZE], crc32(_OFFSET.pack(offset), salt)):
        return None
    return (rtype, flags, meta_length, data_length, seq, wall_ns, elapsed_ns, body)


def body_holds(salt: int, body_crc: int, meta: bytes, data: bytes) -> bool:
    return crc32(data, crc32(meta, salt)) == body_crc


def encode_json(form: dict[str, object]) -> bytes:
    """Compact JSON.  ASCII, so lone surrogates (bytes of argv that are not UTF-8) survive."""
    return _encode(form).encode("ascii")


def decode_json(text: bytes) -> dict[str, object] | None:
    """A JSON object that can be written again, or None for anything else."""
    if _has_too_many_values(text):
        return None
    try:
        form, end = _decoder.raw_decode(text.decode("ascii"))  # unlike `decode`, it looks for no spaces
    except (ValueError, RecursionError):
        return None
    if end != len(text) or not isinstance(form, dict):
        return None
    deep = text.count(b"{") + text.count(b"[") > MAX_DEPTH and is_too_deep(form)
    return None if deep else form


def _has_too_many_values(text: bytes) -> bool:
    """More than `MAX_VALUES`?  By the commas between them: an argument may have as many in itself."""
    if len(text) < MAX_VALUES or text.count(b",") < MAX_VALUES:
        return False
    bare = text.replace(rb"\\", b"").replace(rb"\"", b"")  # each quote that is left opens or closes a string
    if bare.count(b'"') > 4 * (MAX_VALUES + 1):  # as many as there are where each value is text and has a key
        return True
    commas, at = 0, 0
    while commas < MAX_VALUES and (opens := bare.find(b'"', at)) >= 0:
        commas += bare.count(b",", at, opens)
        at = bare.find(b'"', opens + 1) + 1 or len(bare)
    return commas + bare.count(b",", at) >= MAX_VALUES


def is_too_deep(form: dict[str, object]) -> bool:
    """Does it nest deeper than `MAX_DEPTH`?"""
    level: list[dict[str, object] | list[object]] = [form]
    for _ in range(MAX_DEPTH):
        inner = (child for node in level for child in (node.values() if isinstance(node, dict) else node))
        level = [child for child in inner if isinstance(child, dict | list)]
        if not level:
            return False
    return True
