"""Jumping to a seq: the same events as walking there, whatever the records look like."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from durable_supervisor.model.events import Event
from durable_supervisor.runlog.paths import FIRST
from durable_supervisor.runlog.reader import LogReader
from tests.unit.runlog_helpers import MIB, begin, open_writer, paths_in


def all_events(reader: LogReader) -> list[Event]:
    events: list[Event] = []
    while page := reader.page(events[-1].seq if events else 0, 500).events:
        events += page
    return events


def build(directory: Path, sizes: list[int], *, segment_bytes: int) -> None:
    writer = open_writer(paths_in(directory), cap=64 * MIB, segment_bytes=segment_bytes)
    begin(writer)
    for number, size in enumerate(sizes):
        writer.append_output("stderr" if number % 7 == 0 else "stdout", os.urandom(size))
        if number % 50 == 0:
            writer.flush()
    writer.flush()
    writer.close()


@pytest.mark.parametrize("segment_bytes", [64 * 1024, 4 * MIB])
@pytest.mark.parametrize("largest", [40, 3000, 90_000])
def test_a_jump_finds_what_a_walk_finds(tmp_path: Path, segment_bytes: int, largest: int) -> None:
    chance = random.Random(largest)
    count = 3000 if largest < 10_000 else 60
    build(tmp_path, [chance.randrange(1, largest) for _ in range(count)], segment_bytes=segment_bytes)
    walked = all_events(LogReader(paths_in(tmp_path)))
    assert [event.seq for event in walked] == list(range(1, len(walked) + 1))
    for after in [0, 1, 2, len(walked) - 1, *(chance.randrange(len(walked)) for _ in range(40))]:
        page = LogReader(paths_in(tmp_path)).page(after, 3)
        assert page.events == walked[after : after + 3]


def test_a_jump_over_damage_tells_of_the_same_losses(tmp_path: Path) -> None:
    build(tmp_path, [200] * 4000, segment_bytes=4 * MIB)
    path = paths_in(tmp_path).segment_file(1, FIRST)
    chance = random.Random(7)
    with open(path, "r+b") as file:
        for _ in range(12):
            file.seek(chance.randrange(10_000, os.path.getsize(path)))
            file.write(b"\xff" * chance.randrange(1, 2000))
    walked = all_events(LogReader(paths_in(tmp_path)))
    for at in [0, *(chance.randrange(len(walked) - 3) for _ in range(60))]:
        page = LogReader(paths_in(tmp_path)).page(walked[at].seq, 2)
        assert page.events == walked[at + 1 : at + 3]


def test_a_jump_reads_little(tmp_path: Path) -> None:
    build(tmp_path, [1000] * 3500, segment_bytes=4 * MIB)
    reader = LogReader(paths_in(tmp_path))
    reader.page(0, 1)
    before = Path("/proc/self/io").read_text()
    assert [event.seq for event in reader.page(3000, 1).events] == [3001]
    after = Path("/proc/self/io").read_text()
    assert read_bytes(after) - read_bytes(before) < MIB


def read_bytes(io: str) -> int:
    """``rchar``: bytes that were read, from whatever cache (proc(5))."""
    return next(int(line.split()[1]) for line in io.splitlines() if line.startswith("rchar"))
