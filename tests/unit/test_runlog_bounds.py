"""Caps: head and tail stay, the middle is counted, files and bytes stay few."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from durable_supervisor.model.events import Event, Kind
from durable_supervisor.runlog.bounds import segment_size
from durable_supervisor.runlog.reader import LogReader
from durable_supervisor.runlog.repair import open_for_append
from tests.unit.runlog_helpers import (
    BOOT,
    MIB,
    CountingClock,
    begin,
    check_gapless,
    disk_bytes,
    end,
    files_of,
    open_writer,
    paths_in,
    read_all,
    work_of_this_process,
)


def dropped_bytes(events: list[Event], stream: str) -> int:
    total = 0
    for event in events:
        if event.kind == Kind.OUTPUT_DROPPED:
            streams = event.detail.get("streams", {event.detail.get("stream"): event.detail["bytes"]})
            assert isinstance(streams, dict)
            total += streams.get(stream, 0)
    return total


def stored_bytes(events: list[Event], stream: str) -> int:
    return sum(len(event.data) for event in events if event.kind == Kind.OUTPUT and event.stream == stream)


def test_segment_sizes() -> None:
    assert segment_size(1000, 64 * MIB) == 4096
    assert segment_size(MIB, 2 * MIB) == 128 * 1024
    assert segment_size(1 << 50, 1 << 50) == 4 * MIB


def test_a_flood_keeps_head_and_tail(tmp_path: Path) -> None:
    paths = paths_in(tmp_path)
    writer = open_writer(paths, cap=MIB)
    begin(writer)
    line = b"y\n" * 32768
    most_disk = most_files = 0
    count = 200  # 12 MiB
    for index in range(count):
        writer.append_output("stdout", b"%08d" % index + line[8:])
        writer.flush()
        if index % 20 == 0:
            most_disk = max(most_disk, disk_bytes(paths))
            most_files = max(most_files, len(files_of(paths)))
    end(writer)
    assert most_disk < 2 * MIB
    assert most_files <= 20
    events = read_all(paths)
    check_gapless(events, writer.head)
    assert stored_bytes(events, "stdout") == writer.stored("stdout") <= MIB
    assert stored_bytes(events, "stdout") > MIB // 2
    assert dropped_bytes(events, "stdout") == writer.dropped("stdout")
    assert writer.stored("stdout") + writer.dropped("stdout") == count * len(line)
    outputs = [event for event in events if event.kind == Kind.OUTPUT]
    assert outputs[0].data.startswith(b"00000000")
    assert outputs[-1].data.startswith(b"%08d" % (count - 1))
    assert sum(event.kind == Kind.OUTPUT_DROPPED for event in events) == 1
    for event in outputs:
        assert event.offset == int(event.data[:8]) * len(line)
    assert [event.kind for event in events if event.kind.startswith(("run", "program"))] == [
        "run.dispatched", "program.spawned", "program.released", "program.exited", "run.finished",
    ]  # fmt: skip
    for limit in (1, 7):
        assert read_all(paths, limit=limit) == events
        assert read_all(paths, limit=limit, fresh=True) == events


def test_a_cursor_inside_a_dropped_range(tmp_path: Path) -> None:
    paths = paths_in(tmp_path)
    writer = open_writer(paths, cap=64 * 1024)
    for _ in range(300):
        writer.append_output("stdout", b"x" * 2048)
    end(writer)
    drop = next(event for event in read_all(paths) if event.kind == Kind.OUTPUT_DROPPED)
    first = drop.detail["first_seq"]
    assert isinstance(first, int)
    middle = (first + drop.seq) // 2
    event = LogReader(paths).page(middle, 1).events[0]
    assert (event.seq, event.detail["first_seq"]) == (drop.seq, middle + 1)


@pytest.mark.parametrize("cap", [1, 7, 1000, 4096, 30_000])
@pytest.mark.parametrize("chunk", [2, 700, 65536])
def test_tiny_caps(tmp_path: Path, cap: int, chunk: int) -> None:
    paths = paths_in(tmp_path)
    writer = open_writer(paths, cap=cap)
    begin(writer)
    data = bytes(index % 251 for index in range(chunk * 60))
    for at in range(0, len(data), chunk):
        writer.append_output("stderr", data[at : at + chunk])
        writer.flush()
        assert len(files_of(paths)) < 40
    end(writer)
    events = read_all(paths)
    check_gapless(events, writer.head)
    stored = stored_bytes(events, "stderr")
    assert 0 < stored == writer.stored("stderr") <= cap
    assert dropped_bytes(events, "stderr") == writer.dropped("stderr") == len(data) - stored
    outputs = [event for event in events if event.kind == Kind.OUTPUT]
    for event in outputs:
        assert event.offset is not None
        assert event.data == data[event.offset : event.offset + len(event.data)]
    assert outputs[0].offset == 0 or cap < 8
    assert outputs[-1].offset is not None
    assert cap == 1 or outputs[-1].offset + len(outputs[-1].data) == len(data)  # one byte is all head
    assert disk_bytes(paths) < 400_000
    assert read_all(paths, limit=1, fresh=True) == events


def test_the_other_stream_stays_whole(tmp_path: Path) -> None:
    paths = paths_in(tmp_path)
    writer = open_writer(paths, cap=64 * 1024, stderr_cap=MIB)
    begin(writer)
    for index in range(600):
        writer.append_output("stdout", b"o" * 1500)
        if index % 5 == 0:
            writer.append_output("stderr", b"%05d" % index * 20)
        writer.flush()
    end(writer)
    events = read_all(paths)
    check_gapless(events, writer.head)
    assert stored_bytes(events, "stdout") <= 64 * 1024
    assert b"".join(LogReader(paths).raw("stderr")) == b"".join(
        b"%05d" % index * 20 for index in range(0, 600, 5)
    )
    assert dropped_bytes(events, "stderr") == 0
    assert len(files_of(paths)) < 30


def test_both_streams_over_their_caps_merge(tmp_path: Path) -> None:
    paths = paths_in(tmp_path)
    writer = open_writer(paths, cap=32 * 1024, stderr_cap=128 * 1024)
    begin(writer)
    total = {"stdout": 0, "stderr": 0}
    for index in range(1200):
        stream = "stdout" if index % 2 else "stderr"
        total[stream] += 500
        writer.append_output(stream, b"z" * 500)
        writer.flush()
    end(writer)
    events = read_all(paths)
    check_gapless(events, writer.head)
    for stream, cap in (("stdout", 32 * 1024), ("stderr", 128 * 1024)):
        assert stored_bytes(events, stream) == writer.stored(stream) <= cap
        assert stored_bytes(events, stream) + dropped_bytes(events, stream) == total[stream]
    both = [event for event in events if "streams" in event.detail]
    assert len(both) == 1
    assert both[0].stream is None
    assert len(files_of(paths)) < 90
    assert read_all(paths, limit=3, fresh=True) == events


def test_a_crash_between_a_compaction_and_its_clean_up(tmp_path: Path) -> None:
    """The compacted file has its name, the files it replaces are still there, all or some of them."""
    paths = paths_in(tmp_path)
    writer = open_writer(paths, cap=64 * 1024, segment_bytes=8192)
    kept: dict[str, bytes] = {}
    folder = Path(paths.segments_dir(1))
    for index in range(200):
        writer.append_output("stdout", b"%04d" % index * 250)
        writer.flush()
        if folder.exists():
            kept.update({file.name: file.read_bytes() for file in folder.iterdir()})
    end(writer)
    events = read_all(paths)
    back = sorted(name for name in kept if not (folder / name).exists())
    assert back
    for name in back:
        (folder / name).write_bytes(kept[name])
        assert read_all(paths) == events
        assert read_all(paths, limit=3, fresh=True) == events
    for name in back[::2]:
        (folder / name).unlink()
        assert read_all(paths, limit=3, fresh=True) == events
    (folder / "0000000000000002-0000000000000009.1.log.tmp").write_bytes(b"half")
    assert read_all(paths) == events


def test_who_goes_on_after_a_crash_removes_what_a_compaction_left(tmp_path: Path) -> None:
    paths = paths_in(tmp_path)
    writer = open_writer(paths, cap=64 * 1024, segment_bytes=8192)
    folder = Path(paths.segments_dir(1))
    kept: dict[str, bytes] = {}
    for index in range(200):
        writer.append_output("stdout", b"%04d" % index * 250)
        writer.flush()
        if folder.exists():
            kept.update({file.name: file.read_bytes() for file in folder.iterdir()})
    writer.close()
    events, names = read_all(paths), set(os.listdir(folder))
    for name in set(kept) - names:
        (folder / name).write_bytes(kept[name])
    (folder / "0000000000000002-0000000000000009.1.log.tmp").write_bytes(b"half")
    fd = os.open(paths.log(1), os.O_RDWR)
    open_for_append(paths, 1, fd, boot_id=BOOT, clock=CountingClock()).close()
    assert set(os.listdir(folder)) == names
    assert read_all(paths, fresh=True) == events


def test_an_append_is_one_write(tmp_path: Path) -> None:
    """And of no more than the output, its record and its meta data."""
    writer = open_writer(paths_in(tmp_path), segment_bytes=1 << 40)
    block = os.urandom(64 * 1024)
    before = work_of_this_process()
    for _ in range(500):
        writer.append_output("stdout", block)
        writer.flush()
    done = work_of_this_process()
    end(writer)
    assert done["syscw"] - before["syscw"] < 500 + 50
    assert done["wchar"] - before["wchar"] < 500 * (len(block) + 256)
