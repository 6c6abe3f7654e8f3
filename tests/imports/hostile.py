"""Logs of strangers: every checksum in them holds, and some records are none that our writers would make."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from durable_supervisor.runlog.format import (
    EVENT,
    OUTPUT,
    RECORD_SIZE,
    SYNC,
    SegmentHeader,
    decode_header,
    decode_record_head,
    encode_record,
    salt_of,
)
from tests.bundle.test_archive import Members
from tests.imports.bundles import remade, saying
from tests.imports.conftest import Theirs

# Sets a terminal's title, clears it, asks it something, turns text around, ends a message of a stream.
HOSTILE = "\x1b]0;mine\x07\x1b[2J\x1b[5n\u202e<script>alert(1)</script>\n\rid: 9\n\n\x9b31m\ud800"


@dataclass(frozen=True)
class Made:
    """A record of a log of one segment; its place, seq and checksums come with the writing."""

    meta: bytes
    rtype: int = EVENT
    flags: int = 0
    data: bytes = b""
    wall_ns: int = 1_700_000_000_000_000_000
    elapsed_ns: int = 1_000_000


def event(kind: str, detail: object, elapsed_ns: int = 1_000_000) -> Made:
    return Made(json.dumps({"kind": kind, "detail": detail}).encode(), elapsed_ns=elapsed_ns)


def says(detail: bytes) -> Made:
    """An event with these very bytes as its detail."""
    return Made(b'{"kind":"run.warning","detail":%b}' % detail)


def output(data: bytes, offset: bytes = b"4") -> Made:
    return Made(b'{"offset":%b}' % offset, rtype=OUTPUT, flags=1, data=data)


def with_records(theirs: Theirs, file: Path, before: Sequence[Made], behind: Sequence[Made] = ()) -> Path:
    """Their bundle with more in its log: ``before`` its last word, and ``behind`` it."""
    head = 0

    def change(found: Members) -> None:
        nonlocal head
        [name] = [name for name in found if name.endswith(".log")]
        header, made = _read(found[name])
        end = next(at for at, one in enumerate(made) if b'"run.finished"' in one.meta)
        made[end + 1 : end + 1] = behind
        made[end:end] = before
        found[name] = _written(header, made)
        head = sum(one.rtype != SYNC for one in made)
        saying("run.json", head=head)(found)

    remade(theirs.bundle, file, change)  # the manifest has to know the head
    return remade(theirs.bundle, file, change, head=head)


def _read(log: bytes) -> tuple[SegmentHeader, list[Made]]:
    header, at = decode_header(log)
    salt = salt_of(header.run_id, header.attempt, 0)
    made = []
    while at < len(log) and (fields := decode_record_head(salt, at, log, at)) is not None:
        rtype, flags, meta_size, data_size, _, wall_ns, elapsed_ns, _ = fields
        body, at = at + RECORD_SIZE, at + RECORD_SIZE + meta_size + data_size
        made.append(
            Made(log[body : body + meta_size], rtype, flags, log[body + meta_size : at], wall_ns, elapsed_ns)
        )
    return header, made


def _written(header: SegmentHeader, made: Sequence[Made]) -> bytes:
    salt = salt_of(header.run_id, header.attempt, 0)
    log, seq = bytearray(header.encode()), 0
    for one in made:
        seq += one.rtype != SYNC
        meta = b'{"synced":%d}' % len(log) if one.rtype == SYNC else one.meta
        at, times = len(log), (one.wall_ns, one.elapsed_ns)
        log += encode_record(salt, at, one.rtype, one.flags, seq, *times, meta, one.data) + one.data
    return bytes(log)
