"""What a bundle is made of: the names of its members, its manifest, and the bounds a reader keeps.  Format 1.

run.json                         the inspect document
receipt.json                     the receipt document; only of a run that has one
journal.json                     the journal's rows of this run
runs/<shard>/<run>.a<N>.log …    all segments of all attempts, named as in a state directory
session.cast                     asciicast v2; only of a run with a terminal
report.html                      the report, unless it was left out
manifest.json                    the last one: sizes and SHA-256 digests of all the others
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..model.ids import RUN_ID_LENGTH
from ..model.schema import schema_name
from ..runlog.paths import FIRST, RunPaths, SegmentKey, parse_segment_name

FORMAT = 1
MANIFEST = "manifest.json"
RUN = "run.json"
RECEIPT = "receipt.json"
JOURNAL = "journal.json"
CAST = "session.cast"
REPORT = "report.html"
DOCUMENTS = frozenset({RUN, RECEIPT, JOURNAL, CAST, REPORT})
LOGS = "runs"

_RUN_ID = re.compile(rf"[0-9a-z]{{{RUN_ID_LENGTH}}}")
_SHARD = re.compile(r"[0-9a-f]{4,16}")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_MOST_ATTEMPTS = 100_000  # each with a log, and so a member, of its own


class FormatError(ValueError):
    """Not what a bundle may hold; the text names the member and says why."""


@dataclass(frozen=True, slots=True)
class Member:
    """Size in bytes and SHA-256 digest (hex) of a member's content."""

    size: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What a bundle says about itself.

    ``open``: the run was not over when it was exported; the log is a consistent prefix
    up to at least seq ``head``.  ``attempts`` is the newest attempt's number.
    """

    version: str
    run_id: str
    shard: str
    attempts: int
    state: str
    open: bool
    head: int
    members: dict[str, Member]

    def to_dict(self) -> dict[str, object]:
        """The bundle document."""
        return {
            "schema": schema_name("bundle"),
            "format": FORMAT,
            "product": "durable-supervisor",
            "version": self.version,
            "run_id": self.run_id,
            "shard": self.shard,
            "attempts": self.attempts,
            "state": self.state,
            "open": self.open,
            "head": self.head,
            "members": {
                name: {"size": member.size, "sha256": member.sha256}
                for name, member in sorted(self.members.items())
            },
        }

    @classmethod
    def from_dict(cls, form: Mapping[str, Any]) -> Manifest:
        """From a bundle document of any origin.  Raises `FormatError`."""
        if form.get("product") != "durable-supervisor" or not isinstance(form.get("format"), int):
            raise FormatError(f"{MANIFEST} is not a bundle's")
        if form["format"] > FORMAT:
            raise FormatError(f"format {form['format']} is newer than this program ({FORMAT})")
        members = form.get("members")
        if not isinstance(members, dict):
            raise FormatError(f"{MANIFEST} lists no members")
        return cls(
            version=_text(form, "version"),
            run_id=_matching(form, "run_id", _RUN_ID),
            shard=_matching(form, "shard", _SHARD),
            attempts=_count(form, "attempts", _MOST_ATTEMPTS),
            state=_text(form, "state"),
            open=form.get("open") is True,
            head=_count(form, "head", 1 << 63),
            members={name: _member(name, said) for name, said in members.items()},
        )


def log_name(shard: str, run_id: str, attempt: int, key: SegmentKey) -> str:
    """The member that holds one segment."""
    return RunPaths(LOGS, shard, run_id).segment_file(attempt, key)


def parse_log_name(manifest: Manifest, name: str) -> tuple[int, SegmentKey] | None:
    """The attempt and segment that a member's name stands for; None for anything else.

    A name is never used as a path: the file's own is made anew from these numbers.
    """
    stem = f"{LOGS}/{manifest.shard}/{manifest.run_id}.a"
    number, _, rest = name.removeprefix(stem).partition(".")
    if not (number.isascii() and number.isdigit() and len(number) <= 7):
        return None
    attempt = int(number)
    key = FIRST if rest == "log" else parse_segment_name(rest.removeprefix("seg/"))
    if key is None or not 1 <= attempt <= manifest.attempts:
        return None
    return (attempt, key) if log_name(manifest.shard, manifest.run_id, attempt, key) == name else None


def _member(name: str, said: object) -> Member:
    size = said.get("size") if isinstance(said, dict) else None
    digest = said.get("sha256") if isinstance(said, dict) else None
    whole = isinstance(size, int) and not isinstance(size, bool) and size >= 0
    if not (whole and isinstance(digest, str) and _DIGEST.fullmatch(digest)):
        raise FormatError(f"{MANIFEST} has no size and digest for {name[:200]!a}")
    return Member(size, digest)  # type: ignore[arg-type]  # `whole` says that it is an int


def _text(form: Mapping[str, Any], name: str) -> str:
    value = form.get(name)
    if not isinstance(value, str) or len(value) > 200:
        raise FormatError(f"{MANIFEST}: {name} is not a short text")
    return value


def _matching(form: Mapping[str, Any], name: str, pattern: re.Pattern[str]) -> str:
    value = _text(form, name)
    if not pattern.fullmatch(value):
        raise FormatError(f"{MANIFEST}: {name} is malformed")
    return value


def _count(form: Mapping[str, Any], name: str, most: int) -> int:
    value = form.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
        raise FormatError(f"{MANIFEST}: {name} is not a number in its range")
    return value
