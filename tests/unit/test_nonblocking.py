"""Reading a live log without waiting: what a reader would read, or nothing; and never from the disk."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from durable_supervisor.model.events import Event, Kind
from durable_supervisor.model.page import Page
from durable_supervisor.runlog.nonblocking import NonblockingReader
from durable_supervisor.runlog.paths import RunPaths
from durable_supervisor.runlog.reader import LogReader
from durable_supervisor.runlog.writer import LogWriter
from tests.support import can_read_nonblocking
from tests.unit.runlog_helpers import begin, check_gapless, end, files_of, open_writer, paths_in, read_all


@pytest.fixture
def paths(tmp_path: Path) -> RunPaths:
    if not can_read_nonblocking(tmp_path):
        pytest.skip("this file system has no reads that never wait")
    return paths_in(tmp_path)


class Follower:
    """Reads on as followers do: without waiting where that does, else with the reader."""

    def __init__(self, paths: RunPaths) -> None:
        self.reader = LogReader(paths)
        self.nonblocking = NonblockingReader(paths)
        self.after = 0
        self.events: list[Event] = []
        self.reads = 0

    def read(self) -> None:
        page = self.reader.page(self.after)
        self.reader.let_stand(self.nonblocking, page)
        self._take(page)

    def told(self, head: int) -> None:
        page = look(self.nonblocking, self.after, head)
        if page is None:
            self.read()
        else:
            self.reads += 1
            self._take(page)

    def _take(self, page: Page) -> None:
        self.events += page.events
        self.after = page.next_after


def look(
    nonblocking: NonblockingReader,
    after: int,
    head: int,
    *,
    kinds: frozenset[str] | None = None,
    output: bool = True,
) -> Page | None:
    return nonblocking.page(after, head, 100, kinds=kinds, output=output)


def say(writer: LogWriter, *words: bytes) -> None:
    for word in words:
        writer.append_output("stdout", word)
    writer.flush()


def standing(paths: RunPaths) -> tuple[LogWriter, Follower]:
    writer = open_writer(paths)
    begin(writer)
    writer.flush()
    follower = Follower(paths)
    follower.read()
    return writer, follower


def test_it_reads_what_a_reader_reads(paths: RunPaths) -> None:
    writer, follower = standing(paths)
    for number in range(20):
        say(writer, *(b"%d\n" % number,) * (1 + number % 3))
        if number == 7:
            writer.append(Kind.RUN_STOPPING, {"reason": "stop"})
            writer.sync()  # a mark is no event
            writer.flush()
        follower.told(writer.head)
    assert follower.reads == 20
    assert follower.events == read_all(paths)
    end(writer)


def test_filters_do_not_renumber(paths: RunPaths) -> None:
    writer, follower = standing(paths)
    say(writer, b"a", b"b")
    page = look(follower.nonblocking, 3, 5, output=False)
    assert page is not None
    assert (page.events, page.next_after, page.head, page.end) == ([], 5, 5, False)
    page = look(follower.nonblocking, 3, 5, kinds=frozenset({Kind.OUTPUT}))
    assert page is not None
    assert [event.data for event in page.events] == [b"a", b"b"]
    end(writer)


def test_all_followers_have_what_was_read_once(paths: RunPaths) -> None:
    """The same cursor, the same page; who is further back has a reader."""
    writer, follower = standing(paths)
    say(writer, b"a")
    first = look(follower.nonblocking, 3, 4)
    say(writer, b"b")
    again = look(follower.nonblocking, 3, 4)
    assert first is not None
    assert again is not None
    assert first.events == again.events
    assert look(follower.nonblocking, 3, 5) is None, "not all that was told of"
    assert look(follower.nonblocking, 2, 4) is None
    then = look(follower.nonblocking, 4, 5)
    assert then is not None
    assert [event.data for event in then.events] == [b"b"]
    end(writer)


def test_what_a_follower_does_to_its_events_is_no_others_affair(paths: RunPaths) -> None:
    writer, follower = standing(paths)
    writer.append(Kind.PROGRAM_SIGNALLED, {"signal": 15, "targets": [{"pid": 1}]})
    say(writer, b"a")
    first = look(follower.nonblocking, 3, 5)
    assert first is not None
    first.events[0].detail["targets"].clear()  # type: ignore[attr-defined]
    first.events[1].detail.clear()
    first.events[1].data = b"b"
    first.events.reverse()
    again = look(follower.nonblocking, 3, 5)
    assert again is not None
    assert again.events == read_all(paths)[3:]
    end(writer)


def forget(file: Path) -> None:
    """What is on the disk of it is no longer in memory."""
    fd = os.open(file, os.O_RDONLY)
    try:
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(fd)


def is_in_memory(file: Path, offset: int) -> bool:
    fd = os.open(file, os.O_RDONLY)
    try:
        return os.preadv(fd, [bytearray(1)], offset, os.RWF_NOWAIT) == 1
    except BlockingIOError:
        return False
    finally:
        os.close(fd)


def test_what_is_not_in_memory_is_not_waited_for(paths: RunPaths) -> None:
    writer, follower = standing(paths)
    (file,) = files_of(paths)
    for head in range(4, 24):
        say(writer, b"a" * 10_000)
        writer.sync()
        forget(file)
        if look(follower.nonblocking, follower.after, head) is None:
            break
        follower.told(head)  # a kernel that is asked may begin to fetch it, and have it a moment later
    else:
        forget(file)
        assert is_in_memory(file, 8192), "it was never refused what is not in memory"
        pytest.skip("this system keeps what it is told that nobody needs")
    follower.told(head)
    assert follower.events == read_all(paths)
    before = follower.reads
    say(writer, b"b")
    follower.told(head + 1)
    assert follower.reads == before + 1, "the next one is in memory again"
    end(writer)


def test_the_last_word_is_left_to_a_reader(paths: RunPaths) -> None:
    """Whether it counts, a sync may have to say."""
    writer, follower = standing(paths)
    end(writer)
    assert look(follower.nonblocking, 3, 4) is not None, "the exit before it is no last word"
    assert look(follower.nonblocking, 4, 5) is None
    follower.told(5)
    assert follower.events == read_all(paths)


def test_much_at_once_is_left_to_a_reader(paths: RunPaths) -> None:
    writer, follower = standing(paths)
    say(writer, *(b"x",) * 33)
    assert look(follower.nonblocking, 3, 36) is None
    follower.told(36)
    say(writer, b"x" * 20_000)
    assert look(follower.nonblocking, 36, 37) is None
    follower.told(37)
    assert follower.reads == 0
    assert follower.events == read_all(paths)
    end(writer)


def test_a_record_that_is_half_written(paths: RunPaths) -> None:
    writer, follower = standing(paths)
    (file,) = files_of(paths)
    before = file.read_bytes()
    say(writer, b"whole", b"half")
    after = file.read_bytes()
    os.truncate(file, len(after) - 2)
    page = look(follower.nonblocking, 3, 4)
    assert page is not None
    assert [event.data for event in page.events] == [b"whole"]
    assert look(follower.nonblocking, 4, 5) is None
    follower.after = 4
    assert look(follower.nonblocking, 4, 5) is None, "the reader has moved nothing"
    file.write_bytes(after)
    page = look(follower.nonblocking, 4, 5)
    assert page is not None
    assert [event.data for event in page.events] == [b"half"]
    assert len(before) < len(after)
    end(writer)


def test_damage_is_left_to_a_reader(paths: RunPaths) -> None:
    writer, follower = standing(paths)
    say(writer, b"first", b"second")
    (file,) = files_of(paths)
    data = file.read_bytes()
    file.write_bytes(data.replace(b"first", b"worst"))
    assert look(follower.nonblocking, 3, 5) is None
    follower.told(5)
    kinds = [event.kind for event in follower.events[3:]]
    assert kinds == [Kind.OUTPUT_DROPPED, Kind.OUTPUT]
    say(writer, b"third")
    follower.told(6)
    assert follower.reads == 1
    check_gapless(follower.events, 6)
    end(writer)


def test_a_new_segment_is_found_by_a_reader(tmp_path: Path, paths: RunPaths) -> None:
    writer = open_writer(paths, segment_bytes=4096)
    follower = Follower(paths)
    follower.read()
    for number in range(60):
        say(writer, b"%d" % number * 100)
        follower.told(writer.head)
    assert len(files_of(paths)) > 3
    assert follower.events == read_all(paths)
    assert follower.reads > 40
    end(writer)


def test_it_does_not_wait_for_a_thread(paths: RunPaths, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is just opening a file for it, on a disk that hangs."""
    writer, follower = standing(paths)
    say(writer, b"a")
    entered, leave = threading.Event(), threading.Event()
    real = os.close

    def slow(fd: int) -> None:
        entered.set()
        leave.wait(10)
        real(fd)

    with monkeypatch.context() as patched:
        patched.setattr(os, "close", slow)
        thread = threading.Thread(target=follower.nonblocking.close)
        thread.start()
        assert entered.wait(10)
        assert look(follower.nonblocking, 3, 4) is None
        leave.set()
        thread.join()
    assert look(follower.nonblocking, 3, 4) is None
    end(writer)


def test_it_is_not_noted_as_a_read(paths: RunPaths) -> None:
    """To note the time of an access may wait for the file system."""
    writer, follower = standing(paths)
    (file,) = files_of(paths)
    os.utime(file, ns=(1, os.stat(file).st_mtime_ns))  # older than what is written: the next read is noted
    say(writer, b"a")
    assert look(follower.nonblocking, 3, 4) is not None
    assert os.stat(file).st_atime_ns == 1
    end(writer)


def test_a_page_is_no_longer_than_it_may_be(paths: RunPaths) -> None:
    writer, follower = standing(paths)
    say(writer, b"a", b"b")
    assert follower.nonblocking.page(3, 5, 1, kinds=None, output=True) is None
    assert follower.nonblocking.page(3, 5, 2, kinds=None, output=True) is not None
    end(writer)


def test_without_a_descriptor_there_is_none_until_there_is(
    paths: RunPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer, follower = standing(paths)
    follower.nonblocking.close()
    follower.nonblocking = NonblockingReader(paths)
    rightly = os.open

    def short(path: str, flags: int, *more: int) -> int:
        if flags & os.O_NOATIME:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)
        return rightly(path, flags, *more)

    with monkeypatch.context() as patched:
        patched.setattr(os, "open", short)
        follower.read()
        say(writer, b"a")
        follower.told(4)
        assert follower.reads == 0
    follower.read()
    say(writer, b"b")
    follower.told(5)
    assert follower.reads == 1
    assert follower.events == read_all(paths)
    end(writer)


def test_closed_it_holds_nothing(paths: RunPaths) -> None:
    before = os.listdir("/proc/self/fd")
    writer, follower = standing(paths)
    follower.nonblocking.close()
    follower.nonblocking.close()
    follower.read()
    say(writer, b"a")
    assert look(follower.nonblocking, 3, 4) is None
    follower.read()
    end(writer)
    assert os.listdir("/proc/self/fd") == before


@settings(max_examples=60, deadline=None)
@given(
    steps=st.lists(
        st.tuples(st.sampled_from(["out", "err", "kind", "flush", "sync"]), st.integers(1, 3000)), max_size=80
    ),
    cap=st.sampled_from([8 * 1024, 1 << 20]),
    lag=st.integers(1, 7),
)
def test_whatever_is_written_each_seq_is_answered_once(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int]], cap: int, lag: int
) -> None:
    """Rolls, compactions and dropped ranges, beside two followers: one is told of all, one of a part."""
    paths = paths_in(tmp_path_factory.mktemp("log"))
    writer = open_writer(paths, cap=cap)
    quick, slow = Follower(paths), Follower(paths)
    slow.nonblocking = quick.nonblocking
    for number, (step, size) in enumerate(steps):
        if step in ("out", "err"):
            writer.append_output("std" + step, bytes([number]) * size)
        elif step == "kind":
            writer.append(Kind.PROGRAM_SIGNALLED, {"signal": size})
        else:
            writer.sync() if step == "sync" else writer.flush()
            quick.told(writer.head)
            if number % lag == 0:
                slow.told(writer.head)
    end(writer)
    for follower in (quick, slow):
        follower.read()
        check_gapless(follower.events, writer.head)
    quick.nonblocking.close()
    known = {event.seq: event for event in quick.events if event.kind != Kind.OUTPUT_DROPPED}
    for event in read_all(paths):
        if event.kind != Kind.OUTPUT_DROPPED:
            assert known[event.seq] == event
