"""The writer: files, batches, rolls, syncs, short writes."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from durable_supervisor.model.events import Kind
from durable_supervisor.runlog.create import create_log
from durable_supervisor.runlog.format import MAX_META
from durable_supervisor.runlog.reader import LogReader
from durable_supervisor.runlog.writer import LogFullError
from tests.unit.runlog_helpers import (
    MIB,
    RECEIPT,
    begin,
    check_gapless,
    disk_bytes,
    end,
    files_of,
    header_of,
    open_writer,
    paths_in,
    read_all,
)


@pytest.mark.parametrize("umask", [0o000, 0o077, 0o777])
def test_private_whatever_the_umask(tmp_path: Path, umask: int) -> None:
    paths = paths_in(tmp_path)
    old = os.umask(umask)
    try:
        writer = open_writer(paths, segment_bytes=4096)
        for _ in range(10):
            writer.append_output("stdout", b"x" * 1000)
        writer.flush()
    finally:
        os.umask(old)
    for root, directories, names in os.walk(paths.dir):
        assert stat.S_IMODE(os.stat(root).st_mode) == 0o700
        assert all(stat.S_IMODE(os.stat(os.path.join(root, name)).st_mode) == 0o600 for name in names)
        assert directories or names
    end(writer)


def test_descriptors_do_not_reach_programs(tmp_path: Path) -> None:
    writer = open_writer(paths_in(tmp_path), segment_bytes=4096)
    for _ in range(10):
        writer.append_output("stdout", b"x" * 1000)
    job = writer.begin_sync()
    ours = [
        int(name)
        for name in os.listdir("/proc/self/fd")
        if os.path.realpath(f"/proc/self/fd/{name}").startswith(str(tmp_path))
    ]
    assert 3 <= len(ours) <= 20  # the lock, the open segment, sealed ones, and the sync's own of each
    assert all(fcntl.fcntl(fd, fcntl.F_GETFD) & fcntl.FD_CLOEXEC for fd in ours)
    writer.end_sync(job, None)
    end(writer)


def test_a_log_is_made_once(tmp_path: Path) -> None:
    paths = paths_in(tmp_path)
    os.close(create_log(paths, header_of(paths)))
    with pytest.raises(FileExistsError):
        create_log(paths, header_of(paths))
    other = paths_in(tmp_path, "run2")
    os.symlink(tmp_path / "elsewhere", other.log(1))
    with pytest.raises(FileExistsError):
        create_log(other, header_of(other))
    assert not (tmp_path / "elsewhere").exists()


def test_events_and_output_come_back(tmp_path: Path) -> None:
    paths = paths_in(tmp_path)
    writer = open_writer(paths)
    begin(writer)
    assert writer.append_output("stdout", b"") == 3
    assert writer.append_output("stdout", bytes(range(256))) == 4
    assert writer.append_output("stderr", b"\x1b[2J") == 5
    assert writer.append_output("stdout", b"more") == 6
    assert LogReader(paths).page().head == 0  # batched only
    writer.flush()
    assert LogReader(paths).page().head == writer.head == 6
    end(writer)
    events = read_all(paths)
    check_gapless(events, 8)
    outputs = [(event.stream, event.offset, event.data) for event in events if event.kind == Kind.OUTPUT]
    assert outputs == [("stdout", 0, bytes(range(256))), ("stderr", 0, b"\x1b[2J"), ("stdout", 256, b"more")]
    assert events[-1].detail == RECEIPT
    assert writer.stored("stdout") == 260
    assert writer.dropped("stdout") == 0
    assert len(files_of(paths)) == 1


def test_a_five_megabyte_chunk_is_split_and_exact(tmp_path: Path) -> None:
    paths = paths_in(tmp_path)
    writer = open_writer(paths)
    data = os.urandom(5 * MIB)
    writer.append_output("stdout", data)
    end(writer)
    assert b"".join(LogReader(paths).raw("stdout")) == data
    assert b"".join(LogReader(paths).raw("stdout", tail=MIB + 7)) == data[-MIB - 7 :]
    assert b"".join(LogReader(paths).raw("stderr", tail=10)) == b""


def test_space_reserved_ahead_is_given_back(tmp_path: Path) -> None:
    paths = paths_in(tmp_path)
    writer = open_writer(paths)
    begin(writer)
    writer.append_output("stdout", b"x" * 100)
    writer.flush()
    assert disk_bytes(paths) >= 16 * 1024
    end(writer)
    assert disk_bytes(paths) <= 8 * 1024


def test_a_bad_detail_harms_nothing(tmp_path: Path) -> None:
    writer = open_writer(paths_in(tmp_path))
    with pytest.raises(ValueError, match="JSON"):
        writer.append("run.warning", {"x": float("inf")})
    with pytest.raises(ValueError, match="large"):
        writer.append("run.warning", {"x": "y" * MAX_META})
    assert writer.head == 0
    begin(writer)
    end(writer)
    check_gapless(read_all(paths_in(tmp_path)), 5)


def test_rolls_and_pages_over_segments(tmp_path: Path) -> None:
    paths = paths_in(tmp_path)
    writer = open_writer(paths, segment_bytes=4096)
    begin(writer)
    for index in range(200):
        writer.append_output("stdout", b"%03d " % index * 20)
        writer.flush()
    end(writer)
    files = files_of(paths)
    assert len(files) > 5
    assert all(file.stat().st_size < 4096 + 2000 for file in files)
    events = read_all(paths)
    check_gapless(events, 205)
    for limit in (1, 7):
        assert read_all(paths, limit=limit) == events
        assert read_all(paths, limit=limit, fresh=True) == events
    evidence = LogReader(paths).evidence()
    assert evidence.worker == {"pid": 10}
    assert evidence.program == {"pid": 11}
    assert evidence.released
    assert evidence.receipt == RECEIPT
    assert evidence.exited == {"code": 7, "signal": None}


def test_sync_in_another_thread_beside_appending(tmp_path: Path) -> None:
    paths = paths_in(tmp_path)
    writer = open_writer(paths, segment_bytes=64 * 1024)
    begin(writer)
    for _ in range(20):
        writer.append_output("stdout", b"x" * 8192)
        assert writer.unsynced > 0
        job = writer.begin_sync()
        thread = threading.Thread(target=job)
        thread.start()
        writer.append_output("stderr", b"y" * 4096)
        writer.flush()
        thread.join()
        writer.end_sync(job, None)
    assert writer.sync()
    assert writer.unsynced == 0  # the mark alone is no reason to sync again
    end(writer)
    check_gapless(read_all(paths), 45)


def test_a_failed_sync_is_not_asked_again(tmp_path: Path) -> None:
    paths = paths_in(tmp_path)
    writer = open_writer(paths)
    begin(writer)
    job = writer.begin_sync()
    writer.end_sync(job, OSError(errno.EIO, "lost"))
    writer.append_output("stdout", b"after")
    end(writer)
    assert len(files_of(paths)) == 2
    events = read_all(paths)
    check_gapless(events, 7)
    assert events[3].detail == {"reason": "sync_failed", "errno": errno.EIO}


@pytest.mark.parametrize("failures", [1, 2, 4])
def test_a_receipt_whose_sync_fails_gets_a_file_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failures: int
) -> None:
    paths = paths_in(tmp_path)
    writer = open_writer(paths)
    begin(writer)
    real, left = os.fdatasync, [failures]

    def failing(fd: int) -> None:
        if left[0]:
            left[0] -= 1
            raise OSError(errno.EIO, "lost")
        real(fd)

    monkeypatch.setattr(os, "fdatasync", failing)
    for _ in range(failures - 1):
        with pytest.raises(LogFullError):
            writer.finish(Kind.RUN_FINISHED, RECEIPT)
    assert writer.finish(Kind.RUN_FINISHED, RECEIPT) == 4
    writer.close()
    check_gapless(read_all(paths), 4)
    assert LogReader(paths).evidence().receipt == RECEIPT
    files_of(paths)[0].write_bytes(b"")  # all that the failed sync left behind
    assert LogReader(paths).evidence().receipt == RECEIPT


_SHORT_WRITES = """
import os, resource, signal, sys
from pathlib import Path
from tests.unit.runlog_helpers import *
from durable_supervisor.runlog.writer import LogFullError
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
paths = paths_in(Path(sys.argv[1]))
writer = open_writer(paths)
begin(writer)
limit = int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
for index in range(60):
    writer.append_output("stdout", b"%04d" % index * 250)
    if index % 7 == 0:
        try:
            writer.flush()
        except LogFullError:
            pass
try:
    writer.append("run.warning", {"n": 1})
    writer.flush()
except LogFullError:
    print("full")
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
end(writer)
print(writer.dropped("stdout"), writer.stored("stdout"))
"""


@pytest.mark.parametrize("limit", [20_000, 20_481, 33_333])
def test_short_writes_tear_no_record(tmp_path: Path, limit: int) -> None:
    """A file size limit is a real way to a write(2) that ends in the middle of a batch."""
    done = subprocess.run(
        [sys.executable, "-c", _SHORT_WRITES, str(tmp_path), str(limit)],
        capture_output=True, text=True, check=True, env={**os.environ, "PYTHONPATH": "src:."},
    )  # fmt: skip
    paths = paths_in(tmp_path)
    dropped, stored = map(int, done.stdout.split()[-2:])
    events = read_all(paths)
    check_gapless(events, events[-1].seq)
    assert events[-1].detail == RECEIPT
    assert dropped > 0
    assert dropped + stored == 60_000
    assert stored == sum(len(event.data) for event in events)
    told = sum(
        size
        for event in events
        if event.kind == Kind.OUTPUT_DROPPED and isinstance(size := event.detail["bytes"], int)
    )
    assert told == dropped
    evidence = LogReader(paths).evidence(deep=True)
    assert evidence.damage == []
    for event in events:
        if event.kind == Kind.OUTPUT:
            assert event.offset is not None
            assert event.data == b"%04d" % (event.offset // 1000) * 250


def test_without_truncate_the_cap_is_hard(tmp_path: Path) -> None:
    paths = paths_in(tmp_path)
    writer = open_writer(paths, cap=1000, truncate=False)
    begin(writer)
    for _ in range(100):
        writer.append_output("stdout", b"x" * 64)
        writer.append_output("stderr", b"y")
    end(writer)
    assert writer.stored("stdout") == 1000
    assert writer.dropped("stdout") == 5400
    assert b"".join(LogReader(paths).raw("stdout")) == b"x" * 1000
    events = read_all(paths)
    check_gapless(events, events[-1].seq)
    drops = [event.detail for event in events if event.kind == Kind.OUTPUT_DROPPED]
    assert [(drop["stream"], drop["bytes"], drop["reason"]) for drop in drops] == [("stdout", 5400, "limit")]
