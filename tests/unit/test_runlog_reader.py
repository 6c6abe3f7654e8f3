"""Pages: filters, attempts, live tails, readers beside rolls and compactions."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

import pytest

from durable_supervisor.model.errors import ErrorCode, SupervisorError
from durable_supervisor.model.events import Kind
from durable_supervisor.runlog.reader import LogReader
from tests.unit.runlog_helpers import (
    DIRECTORY,
    MIB,
    RECEIPT,
    begin,
    check_gapless,
    end,
    files_of,
    open_writer,
    paths_in,
    read_all,
    work_of_this_process,
)


def test_following_a_live_log(tmp_path: Path) -> None:
    paths = paths_in(tmp_path)
    reader = LogReader(paths)
    assert reader.page().events == []
    writer = open_writer(paths)
    page = reader.page()
    assert (page.events, page.head, page.end) == ([], 0, False)
    seen = []
    after = 0
    for index in range(50):
        writer.append_output("stdout", b"%d\n" % index)
        if index % 3 == 0:
            writer.flush()
        page = reader.page(after)
        seen += page.events
        after = page.next_after
        assert not page.end
    end(writer)
    page = reader.page(after)
    seen += page.events
    assert page.end
    assert page.head == page.next_after == 52
    check_gapless(seen, 52)
    page = reader.page(52)
    assert (page.events, page.end) == ([], True)
    assert LogReader(paths).page(52).end


def test_filters_do_not_renumber(tmp_path: Path) -> None:
    paths = paths_in(tmp_path)
    writer = open_writer(paths)
    begin(writer)
    for _ in range(20):
        writer.append_output("stdout", b"x")
    end(writer)
    page = LogReader(paths).page(output=False)
    assert [event.seq for event in page.events] == [1, 2, 3, 24, 25]
    assert (page.next_after, page.end) == (25, True)
    page = LogReader(paths).page(3, kinds=frozenset({Kind.PROGRAM_EXITED}), limit=1)
    assert [event.seq for event in page.events] == [24]
    assert (page.next_after, page.end) == (24, False)
    page = LogReader(paths).page(3, kinds=frozenset({Kind.RUN_STOPPING}))
    assert (page.events, page.next_after, page.end) == ([], 25, True)
    assert LogReader(paths).page(3, limit=0).next_after == 3


def test_a_page_is_bounded_in_bytes(tmp_path: Path) -> None:
    paths = paths_in(tmp_path)
    writer = open_writer(paths)
    for _ in range(10):
        writer.append_output("stdout", b"x" * 1000)
    end(writer)
    assert len(LogReader(paths).page(max_bytes=2500).events) == 3
    assert len(LogReader(paths).page(max_bytes=0).events) == 1


def test_what_events_tell_counts_as_what_programs_print(tmp_path: Path) -> None:
    """A MiB of arguments in each of a hundred attempts is a hundred MiB."""
    paths = paths_in(tmp_path)
    writer = open_writer(paths)
    for _ in range(8):
        writer.append(Kind.RUN_WARNING, {"reason": "w" * MIB})
    writer.flush()
    writer.close()
    reader = LogReader(paths)
    page = reader.page(max_bytes=3 * MIB)
    assert [event.seq for event in page.events] == [1, 2, 3]
    assert (page.next_after, page.head, page.end) == (3, 8, False)
    assert len(reader.page(3, max_bytes=9 * MIB).events) == 5
    assert len(reader.page(output=False, kinds=frozenset(), max_bytes=MIB).events) == 0


def test_a_cursor_beyond_the_head_is_told(tmp_path: Path) -> None:
    paths = paths_in(tmp_path)
    writer = open_writer(paths)
    begin(writer)
    end(writer)
    with pytest.raises(SupervisorError) as caught:
        LogReader(paths).page(6)
    assert caught.value.code is ErrorCode.CURSOR_AHEAD
    assert caught.value.details == {"after": 6, "head": 5, "generation": 1}


def test_seqs_go_on_over_attempts(tmp_path: Path) -> None:
    paths = paths_in(tmp_path)
    first = open_writer(paths)
    first.finish(Kind.RUN_NOT_STARTED, {"reason": "ENOENT"})
    first.close()
    assert LogReader(paths, 1).page().end
    reader = LogReader(paths, 2)  # the journal says 2 before the file is there
    page = reader.page()
    assert ([event.seq for event in page.events], page.head, page.end) == ([1], 1, False)
    second = open_writer(paths, attempt=2, first_seq=2, segment_bytes=4096)
    assert reader.page(1).head == 1
    begin(second)
    for _ in range(20):
        second.append_output("stdout", b"x" * 1000)
    end(second)
    events = read_all(paths, 2)
    check_gapless(events, 26)
    assert read_all(paths, 2, limit=1, fresh=True) == events
    assert reader.page(1).end
    assert reader.evidence().receipt == RECEIPT
    assert LogReader(paths, 1).evidence().last_verdict == {"kind": "run.not_started", "reason": "ENOENT"}
    files_of(paths, 2)[0].write_bytes(b"\0" * 500)  # where the second attempt begins must then be guessed
    damaged = read_all(paths, 2, limit=1)
    check_gapless(damaged, 26)
    assert damaged[1].detail == {"first_seq": 2, "reason": "corrupt"}


def test_evidence_of_a_header_only_log(tmp_path: Path) -> None:
    paths = paths_in(tmp_path)
    open_writer(paths).close()
    evidence = LogReader(paths, directory_id=DIRECTORY).evidence()
    assert (evidence.status, evidence.has_records, evidence.head) == ("ok", False, 0)
    assert evidence.header is not None
    assert evidence.header.detail["request_id"] == "r-1"
    assert LogReader(paths, directory_id="other").evidence().status == "foreign"
    other = paths_in(tmp_path, "run2")
    os.link(paths.log(1), other.log(1))
    assert LogReader(other).evidence().status == "foreign"


def test_evidence_of_many_small_logs_is_cheap(tmp_path: Path) -> None:
    paths = paths_in(tmp_path)
    writer = open_writer(paths)
    begin(writer)
    end(writer)
    before = work_of_this_process()
    for _ in range(500):  # 5,000 of them are judged at one open
        assert LogReader(paths).evidence().receipt is not None
    done = work_of_this_process()
    assert done["syscr"] - before["syscr"] < 500 * 8
    assert done["rchar"] - before["rchar"] < 500 * 4 * os.path.getsize(paths.log(1))


def test_a_page_is_read_from_where_the_last_one_ended(tmp_path: Path) -> None:
    paths = paths_in(tmp_path)
    writer = open_writer(paths, segment_bytes=1 << 40)
    for _ in range(20_000):
        writer.append_output("stdout", b"x" * 400)
    end(writer)
    before = work_of_this_process()
    assert len(read_all(paths, limit=100)) == 20_002
    read = work_of_this_process()["rchar"] - before["rchar"]
    pages, size = 201, os.path.getsize(paths.log(1))
    assert read < pages * size / 8, "from the beginning each time it is half of the log for a page"


@pytest.mark.parametrize("cap", [64 * 1024, 64 * MIB])
def test_a_reader_beside_rolls_and_compactions(tmp_path: Path, cap: int) -> None:
    """Whatever the timing: no gap, no duplicate, and only what the cap dropped is dropped."""
    paths = paths_in(tmp_path)
    writer = open_writer(paths, cap=cap, segment_bytes=8192)
    problems: list[BaseException] = []
    done = threading.Event()

    def write() -> None:
        try:
            begin(writer)
            for index in range(1500):
                writer.append_output("stdout" if index % 3 else "stderr", b"%08d" % index * 40)
                if index % 50 == 0:
                    writer.append("run.warning", {"n": index})
                writer.flush()
            end(writer)
        except BaseException as problem:
            problems.append(problem)
        finally:
            done.set()

    thread = threading.Thread(target=write)
    thread.start()
    reader, events, after = LogReader(paths), [], 0
    while True:
        over = done.is_set()
        page = reader.page(after, 37)
        events += page.events
        after = page.next_after
        if page.end or (over and not page.events):
            break
    thread.join()
    assert problems == []
    check_gapless(events, writer.head)
    reasons = {event.detail["reason"] for event in events if event.kind == Kind.OUTPUT_DROPPED}
    assert reasons <= {"limit"}
    assert [event.detail["n"] for event in events if event.kind == "run.warning"] == list(range(0, 1500, 50))
    final = read_all(paths)
    check_gapless(final, writer.head)
    assert read_all(paths, limit=1, fresh=True) == final


def test_a_segment_that_no_descriptor_is_left_for_is_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its reader goes on behind the last event that it has seen, once there are descriptors again."""
    paths = paths_in(tmp_path)
    writer = open_writer(paths, segment_bytes=4096)
    begin(writer)
    for index in range(400):
        writer.append_output("stdout", b"%0100d\n" % index)
    end(writer)
    whole = read_all(paths)
    opened, rightly = 0, os.open

    def short(path: str, flags: int, *more: int) -> int:
        nonlocal opened
        opened += 1
        if opened % 5 == 0:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)
        return rightly(path, flags, *more)

    monkeypatch.setattr(os, "open", short)
    reader, after, refused = LogReader(paths), 0, 0
    seen = []
    while True:
        try:
            page = reader.page(after, 50)
        except OSError:
            refused += 1
            continue
        seen += page.events
        after = page.next_after
        if page.end:
            break
    assert refused
    assert [event.to_dict() for event in seen] == [event.to_dict() for event in whole]
