"""Damage of every kind: never a crash, never a wrong event, never a lost valid receipt."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from tempfile import mkdtemp

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from durable_supervisor.model.events import Event, Kind
from durable_supervisor.runlog.files import list_segments
from durable_supervisor.runlog.format import SYNC, salt_of
from durable_supervisor.runlog.reader import LogReader
from durable_supervisor.runlog.scan import Record, Scanner
from durable_supervisor.runlog.walk import Walker
from tests.unit.runlog_helpers import (
    BOOT,
    RECEIPT,
    begin,
    check_gapless,
    end,
    open_writer,
    paths_in,
    read_all,
)
from tests.unit.test_runlog_damage import repair

SHAPES = ("small", "segments", "compacted", "attempts", "unfinished")


def make(directory: Path, shape: str) -> int:
    """Write a log of that shape; returns its number of attempts."""
    paths = paths_in(directory)
    cap = 24 * 1024 if shape == "compacted" else 1 << 26
    segment = None if shape in ("small", "unfinished") else 4096
    attempts, first = 1, 1
    if shape == "attempts":
        writer = open_writer(paths)
        writer.append_output("stderr", b"not found")
        writer.finish(Kind.RUN_NOT_STARTED, {"reason": "ENOENT"})
        writer.close()
        attempts, first = 2, 3
    writer = open_writer(paths, cap=cap, segment_bytes=segment, attempt=attempts, first_seq=first)
    begin(writer)
    for index in range(12 if shape == "small" else 40):
        writer.append_output("stdout" if index % 4 else "stderr", bytes([index]) * (index * 37 % 1500 + 1))
        if index == 20:
            writer.append(Kind.RUN_STOPPING, {"reason": "stop"})
        if index % 5 == 0:
            writer.sync()
    if shape == "unfinished":
        writer.flush()
        writer.close()
    else:
        end(writer)
    return attempts


class Original:
    """A log that is never touched, and what it says."""

    def __init__(self, shape: str) -> None:
        self.directory = Path(mkdtemp(prefix="runlog-fuzz-"))
        self.attempts = make(self.directory, shape)
        self.paths = paths_in(self.directory)
        self.events = read_all(self.paths, self.attempts)
        self.files = sorted(path for path in self.directory.rglob("*.log"))
        keys = list_segments(self.paths, self.attempts)
        self.last = Path(self.paths.segment_file(self.attempts, keys[-1]))
        self.receipt = self._receipt_range(keys[-1])

    def _receipt_range(self, key: tuple[int, int, int]) -> range:
        with open(self.last, "rb") as file:
            scanner = Scanner(
                file.fileno(), salt_of("run1", self.attempts, key[0]), 0, self.last.stat().st_size
            )
            scanner.header()
            found = range(0)
            while isinstance(item := scanner.step(), Record):
                if item.rtype != SYNC and item.kind == Kind.RUN_FINISHED:
                    found = range(item.offset, item.end)
            return found


@lru_cache
def original(shape: str) -> Original:
    return Original(shape)


@pytest.fixture(scope="module", autouse=True)
def _remove_originals():  # type: ignore[no-untyped-def]
    yield
    for shape in SHAPES:
        shutil.rmtree(original(shape).directory, ignore_errors=True)
    original.cache_clear()


def check_damaged(source: Original, directory: Path, *, receipt_whole: bool) -> None:
    paths = paths_in(directory)
    truth = {event.seq: event for event in source.events}
    events = read_all(paths, source.attempts)
    head = LogReader(paths, source.attempts).page().head
    check_gapless(events, head)
    assert head <= source.events[-1].seq
    for event in events:
        if event.detail.get("reason") != "corrupt":
            check_same(event, truth[event.seq])
    for limit in (1, 3):
        assert read_all(paths, source.attempts, limit=limit) == events
    assert read_all(paths, source.attempts, limit=2, fresh=True) == events
    for deep in (False, True):
        evidence = LogReader(paths, source.attempts).evidence(boot_id=BOOT, deep=deep)
        assert evidence.receipt in (None, RECEIPT)
        if receipt_whole and len(source.receipt):
            assert evidence.receipt == RECEIPT
    assert list(LogReader(paths, source.attempts).raw(tail=100)) is not None


def check_same(event: Event, true: Event) -> None:
    """Equal, but that a drop range may begin later where a damaged range ends."""
    if event.kind == Kind.OUTPUT_DROPPED and event != true:
        assert (event.kind, event.wall_ns) == (true.kind, true.wall_ns)
        assert {**event.detail, "first_seq": 0} == {**true.detail, "first_seq": 0}
    else:
        assert event == true


def damaged(source: Original, spoil: Callable[[Path], bool]) -> None:
    """Copy the log, spoil the copy (which says whether the receipt's bytes are whole), check it."""
    directory = Path(mkdtemp(prefix="runlog-fuzz-"))
    try:
        shutil.copytree(source.directory, directory, dirs_exist_ok=True)
        check_damaged(source, directory, receipt_whole=spoil(directory))
        check_repaired(source, directory)
    finally:
        shutil.rmtree(directory)


def check_repaired(source: Original, directory: Path) -> None:
    """Whatever it was: a repair goes on behind it, and old answers stay as they were."""
    paths = paths_in(directory)
    before = read_all(paths, source.attempts)
    evidence = LogReader(paths, source.attempts).evidence(boot_id=BOOT)
    if evidence.status in ("missing", "foreign", "not_regular"):
        return
    writer = repair(paths, source.attempts)
    seq = writer.finish(Kind.RUN_UNKNOWN, {"reason": "test"})
    writer.close()
    events = read_all(paths, source.attempts)
    check_gapless(events, seq)
    assert events[: len(before)] == before
    assert events[-1].kind == Kind.RUN_UNKNOWN
    assert LogReader(paths, source.attempts).page(seq).end
    assert LogReader(paths, source.attempts).evidence(boot_id=BOOT).receipt == evidence.receipt


shapes = st.sampled_from(SHAPES)
unit = st.floats(0, 1, exclude_max=True)


@settings(max_examples=60)
@given(shapes, st.lists(st.tuples(unit, unit, st.integers(0, 7)), min_size=1, max_size=3))
def test_flipped_bits(shape: str, flips: list[tuple[float, float, int]]) -> None:
    source = original(shape)

    def spoil(directory: Path) -> bool:
        whole = True
        for which, where, bit in flips:
            file = source.files[int(which * len(source.files))]
            copy = directory / file.relative_to(source.directory)
            data = bytearray(copy.read_bytes())
            offset = int(where * len(data))
            data[offset] ^= 1 << bit
            copy.write_bytes(data)
            whole = whole and not (file == source.last and offset in source.receipt)
        return whole

    damaged(source, spoil)


@settings(max_examples=30)
@given(shapes, unit, st.booleans())
def test_cut_tails(shape: str, where: float, any_file: bool) -> None:
    source = original(shape)

    def spoil(directory: Path) -> bool:
        file = source.files[int(where * len(source.files))] if any_file else source.last
        copy = directory / file.relative_to(source.directory)
        data = copy.read_bytes()
        copy.write_bytes(data[: int(where * len(data))])
        return file != source.last

    damaged(source, spoil)


@settings(max_examples=30)
@given(shapes, unit, unit, st.sampled_from([512, 4096]))
def test_zeroed_blocks(shape: str, which: float, where: float, block: int) -> None:
    """What a crash leaves of blocks that had a size but never their bytes."""
    source = original(shape)

    def spoil(directory: Path) -> bool:
        file = source.files[int(which * len(source.files))]
        copy = directory / file.relative_to(source.directory)
        data = bytearray(copy.read_bytes())
        start = int(where * len(data)) // block * block
        stop = min(start + block, len(data))
        data[start:stop] = bytes(stop - start)
        copy.write_bytes(data)
        return file != source.last or stop <= source.receipt.start or start >= source.receipt.stop

    damaged(source, spoil)


@settings(max_examples=25)
@given(shapes, st.binary(min_size=1, max_size=300), unit, st.booleans())
def test_strange_bytes_put_in(shape: str, strange: bytes, where: float, nul: bool) -> None:
    """Appended or overwritten; inserted bytes move what follows, so that counts as cut there."""
    source = original(shape)

    def spoil(directory: Path) -> bool:
        copy = directory / source.last.relative_to(source.directory)
        copy.write_bytes(copy.read_bytes() + (bytes(len(strange)) if nul else strange))
        return True

    damaged(source, spoil)


@settings(max_examples=25)
@given(shapes, unit)
def test_lost_files(shape: str, which: float) -> None:
    source = original(shape)

    def spoil(directory: Path) -> bool:
        file = source.files[int(which * len(source.files))]
        (directory / file.relative_to(source.directory)).unlink()
        return file != source.last and file.parent != source.files[0].parent

    damaged(source, spoil)


@settings(max_examples=25)
@given(shapes, st.lists(st.integers(1, 9), min_size=1, max_size=8))
def test_any_page_sizes_give_the_same_events(shape: str, sizes: list[int]) -> None:
    source = original(shape)
    reader = LogReader(source.paths, source.attempts)
    events: list[Event] = []
    after = turn = 0
    while True:
        page = reader.page(after, sizes[turn % len(sizes)])
        events += page.events
        after, turn = page.next_after, turn + 1
        if page.end or not page.events:
            break
    assert events == source.events == list(Walker(source.paths, source.attempts).events(0))
