"""Where a run's files are: names only, no file is opened here.

    runs/<shard>/<run_id>.a<attempt>.log                    first segment; its lock is the proof of life
    runs/<shard>/<run_id>.a<attempt>.seg/<first>.log        further segments, named by their first seq
    runs/<shard>/<run_id>.a<attempt>.seg/<first>-<last>.<dropped>.log
                                                            a compacted stretch; replaces what it covers
    runs/<shard>/<run_id>.sock                              the worker's control socket

A name is written once and never means other bytes later, so an offset that a
reader remembers stays good; a compacted stretch carries its range in its name,
so one rename replaces many segments at once, also across a crash.
"""

from __future__ import annotations

import os

SHARD_RUNS = 256  # an opening looks through one shard
LOG_SUFFIX = ".log"
HALF_MADE = LOG_SUFFIX + ".tmp"  # a segment that has no name of its own yet
_SHARD_CHARACTERS = frozenset("0123456789abcdef")
_ID_CHARACTERS = frozenset("0123456789abcdefghijklmnopqrstuvwxyz")

SegmentKey = tuple[int, int, int]
"""``(first_seq, last_seq, dropped)``; last is 0 while not compacted; dropped: 1 stdout, 2 stderr, 3 both."""
FIRST: SegmentKey = (0, 0, 0)  # the attempt's first segment


class RunPaths:
    """The file names of one run.  Strings as `os.fsdecode` makes them: any bytes are fine."""

    __slots__ = ("dir", "run_id", "runs_dir", "shard")

    def __init__(self, runs_dir: str, shard: str, run_id: str) -> None:
        if not run_id or not _ID_CHARACTERS.issuperset(run_id):
            raise ValueError("a run id consists of lower-case letters and digits")
        self.runs_dir = runs_dir
        self.shard = shard
        self.run_id = run_id
        self.dir = f"{runs_dir}/{shard}"

    def __repr__(self) -> str:
        return f"RunPaths({self.shard}/{self.run_id})"

    def log(self, attempt: int) -> str:
        """The attempt's first segment."""
        return f"{self.dir}/{self.run_id}.a{attempt}{LOG_SUFFIX}"

    def segments_dir(self, attempt: int) -> str:
        return f"{self.dir}/{self.run_id}.a{attempt}.seg"

    def segment(self, attempt: int, first_seq: int) -> str:
        """A further segment, as it is written."""
        return self.segment_file(attempt, (first_seq, 0, 0))

    def segment_file(self, attempt: int, key: SegmentKey) -> str:
        if key == FIRST:
            return self.log(attempt)
        return f"{self.segments_dir(attempt)}/{segment_name(key)}"

    @property
    def socket(self) -> str:
        return f"{self.dir}/{self.run_id}.sock"


def segment_name(key: SegmentKey) -> str:
    first, last, dropped = key
    return f"{first:016d}-{last:016d}.{dropped}{LOG_SUFFIX}" if last else f"{first:016d}{LOG_SUFFIX}"


def parse_segment_name(name: str) -> SegmentKey | None:
    """The key a file name stands for; None for anything else (a half-made file, a stranger)."""
    first, dash, rest = name.removesuffix(LOG_SUFFIX).partition("-")
    last, dot, dropped = rest.partition(".")
    numbers = (first, last, dropped) if dash and dot else (first,)
    if not name.isascii() or not all(number.isdigit() for number in numbers):
        return None
    key = (int(first), int(last or 0), int(dropped or 0))
    return key if segment_name(key) == name else None


def shard_of(serial: int) -> str:
    """The shard of the run admitted as number ``serial``: 256 runs in each."""
    return f"{serial // SHARD_RUNS:04x}"


def list_shards(runs_dir: str, since: str = "") -> list[str]:
    """All shards from this one on, oldest first; empty when there is no such directory."""
    try:
        names = os.listdir(runs_dir)
    except FileNotFoundError:
        return []
    first = len(since), since
    # There may be thousands: those of long ago are passed over before they are looked at.
    found = [key for name in names if (key := (len(name), name)) >= first]
    return [name for length, name in sorted(found) if length >= 4 and _SHARD_CHARACTERS.issuperset(name)]


def list_runs(runs_dir: str, shard: str) -> dict[str, int]:
    """``{run_id: newest attempt}`` of the logs in a shard."""
    return {run_id: attempts[-1] for run_id, attempts in list_attempts(runs_dir, shard).items()}


def list_attempts(runs_dir: str, shard: str) -> dict[str, list[int]]:
    """``{run_id: attempts}`` of the logs in a shard, oldest first: only those that are there."""
    found: dict[str, list[int]] = {}
    try:
        names = os.listdir(os.path.join(runs_dir, shard))
    except FileNotFoundError:
        return found
    for name in names:
        run_id, dot, attempt = name.removesuffix(LOG_SUFFIX).partition(".a")
        is_log = name.endswith(LOG_SUFFIX) and dot and attempt.isascii() and attempt.isdigit()
        if is_log and attempt[0] != "0" and run_id and _ID_CHARACTERS.issuperset(run_id):
            found.setdefault(run_id, []).append(int(attempt))
    for attempts in found.values():
        attempts.sort()
    return found


def has_runs(runs_dir: str, shard: str) -> bool:
    """Is there any log in a shard?  Looks no further than the first."""
    try:
        with os.scandir(os.path.join(runs_dir, shard)) as entries:
            return any(entry.name.endswith(LOG_SUFFIX) for entry in entries)
    except FileNotFoundError:
        return False


def find_run(runs_dir: str, run_id: str) -> RunPaths | None:
    """Look for a run's first log in every shard, newest first; for use without a journal."""
    if not run_id or not _ID_CHARACTERS.issuperset(run_id):
        return None
    for shard in reversed(list_shards(runs_dir)):
        paths = RunPaths(runs_dir, shard, run_id)
        try:
            os.lstat(paths.log(1))
        except OSError:
            continue
        return paths
    return None
