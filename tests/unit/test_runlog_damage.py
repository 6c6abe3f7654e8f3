"""Damaged, cut, replaced and hostile logs; and going on behind them."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from durable_supervisor.model.errors import ErrorCode, SupervisorError
from durable_supervisor.model.events import Kind
from durable_supervisor.runlog import format as form
from durable_supervisor.runlog.files import NotRegularError, open_regular
from durable_supervisor.runlog.paths import RunPaths
from durable_supervisor.runlog.reader import LogReader
from durable_supervisor.runlog.repair import LogUnusableError, open_for_append
from durable_supervisor.runlog.writer import LogWriter
from tests.unit.runlog_helpers import (
    BOOT,
    DIRECTORY,
    OTHER_BOOT,
    RECEIPT,
    CountingClock,
    begin,
    check_gapless,
    end,
    files_of,
    open_writer,
    paths_in,
    read_all,
)


def flip(path: Path, offset: int, bit: int = 0) -> None:
    with open(path, "r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ (1 << bit)]))


def repair(paths: RunPaths, attempt: int = 1, boot: str = BOOT) -> LogWriter:
    fd = os.open(paths.log(attempt), os.O_RDWR)
    try:
        return open_for_append(paths, attempt, fd, boot_id=boot, clock=CountingClock())
    except BaseException:
        os.close(fd)
        raise


def small_log(tmp_path: Path, *, finished: bool = False, run_id: str = "run1") -> Path:
    paths = paths_in(tmp_path, run_id)
    writer = open_writer(paths)
    begin(writer)
    writer.append_output("stdout", b"one\n" * 50)
    writer.flush()
    if finished:
        end(writer)
    else:
        writer.sync()
        writer.append_output("stdout", b"two\n" * 50)
        writer.flush()
        writer.close()
    return Path(paths.log(1))


@pytest.mark.parametrize(
    ("spoil", "reason", "lost"),
    [
        (lambda path: os.truncate(path, path.stat().st_size - 7), "torn_tail", 1),
        (lambda path: path.write_bytes(path.read_bytes() + b"\0" * 300), "corrupt", 0),
        (lambda path: flip(path, path.stat().st_size - 3), "corrupt", 1),
        (lambda path: path.write_bytes(path.read_bytes() + form.RECORD_MAGIC), "torn_tail", 0),
    ],
)
def test_a_spoilt_tail_is_sealed_and_gone_on_from(tmp_path: Path, spoil, reason: str, lost: int) -> None:  # type: ignore[no-untyped-def]
    path = small_log(tmp_path)
    paths = paths_in(tmp_path)
    before = read_all(paths)
    spoil(path)
    spoilt = path.read_bytes()
    assert read_all(paths) == before[: 5 - lost]
    assert [found["class"] for found in LogReader(paths).evidence(boot_id=BOOT).damage] == [reason]
    writer = repair(paths)
    assert writer.append(Kind.RUN_UNKNOWN, {"reason": "x"}) == 7 - lost
    writer.finish(Kind.RUN_RESOLVED, {})
    writer.close()
    assert path.read_bytes() == spoilt  # nothing is cut
    events = read_all(paths)
    check_gapless(events, 8 - lost)
    repairs = [event for event in events if event.kind == Kind.RUN_LOG_REPAIRED]
    assert [event.detail["reason"] for event in repairs] == [reason]
    assert repairs[0].detail["skipped_bytes"] == len(spoilt) - repairs[0].detail["offset"]  # type: ignore[operator]
    page = LogReader(paths).page()
    assert (page.generation, page.end) == (2, True)
    again = repair(paths)  # clean now: the same generation, no second repair event
    assert again.append(Kind.RUN_RESOLVED, {"n": 2}) == 9 - lost
    again.flush()
    again.close()
    assert LogReader(paths).page().generation == 2
    check_gapless(read_all(paths, limit=1, fresh=True), 9 - lost)


def test_unsynced_damage_of_another_boot_is_a_crash(tmp_path: Path) -> None:
    path = small_log(tmp_path)
    paths = paths_in(tmp_path)
    size = path.stat().st_size
    flip(path, size - 3)
    assert LogReader(paths).evidence(boot_id=OTHER_BOOT).damage[0]["class"] == "crash"
    assert LogReader(paths).evidence(boot_id=BOOT).damage[0]["class"] == "corrupt"
    flip(path, size - 3)
    text = path.read_bytes()
    flip(path, text.index(b"one\n"))  # before the sync mark: it was on the disk
    assert LogReader(paths).evidence(boot_id=OTHER_BOOT).damage[0]["class"] == "corrupt"


def test_another_boot_is_another_generation(tmp_path: Path) -> None:
    """Power loss may cut exactly between two records, so that the tail looks whole."""
    path = small_log(tmp_path)
    paths = paths_in(tmp_path)
    os.truncate(path, path.read_bytes().rindex(form.RECORD_MAGIC))
    writer = repair(paths, boot=OTHER_BOOT)
    writer.finish(Kind.RUN_UNKNOWN, {"reason": "boot"})
    writer.close()
    with pytest.raises(SupervisorError) as caught:
        LogReader(paths).page(7)
    assert caught.value.code is ErrorCode.CURSOR_AHEAD
    assert caught.value.details == {"after": 7, "head": 6, "generation": 2}
    events = read_all(paths)
    check_gapless(events, 6)
    assert events[-2].detail["reason"] == "other_boot"


def test_a_receipt_behind_a_damaged_length_counts(tmp_path: Path) -> None:
    path = small_log(tmp_path, finished=True)
    paths = paths_in(tmp_path)
    before = read_all(paths)
    output = path.read_bytes().index(b'{"offset":0}') - form.RECORD_SIZE
    flip(path, output + 12, 6)  # its data length
    evidence = LogReader(paths).evidence(boot_id=BOOT)
    assert evidence.receipt == RECEIPT
    assert [found["class"] for found in evidence.damage] == ["corrupt"]
    events = read_all(paths)
    check_gapless(events, 6)
    assert (events[3].kind, events[3].detail) == (Kind.OUTPUT_DROPPED, {"first_seq": 4, "reason": "corrupt"})
    assert events[:3] + events[4:] == before[:3] + before[4:]


def test_a_damaged_header_loses_no_record(tmp_path: Path) -> None:
    path = small_log(tmp_path, finished=True)
    paths = paths_in(tmp_path)
    before = read_all(paths)
    for offset in (0, 9, 13, 40):
        flip(path, offset, 5)
        evidence = LogReader(paths, directory_id=DIRECTORY).evidence(boot_id=BOOT)
        assert (evidence.status, evidence.header, evidence.receipt) == ("ok", None, RECEIPT)
        assert len(evidence.damage) == 1
        assert read_all(paths) == before
        flip(path, offset, 5)


def test_what_is_no_log(tmp_path: Path) -> None:
    paths = paths_in(tmp_path)
    path = small_log(tmp_path, finished=True)
    real = path.read_bytes()
    assert LogReader(paths_in(tmp_path, "none")).evidence().status == "missing"
    for status, left in (
        ("empty", b""),
        ("empty", real[:8]),
        ("empty", real[:8] + b"\0" * 400),
        ("empty", b"\0" * 4096),
        ("unreadable", real[:20]),
        ("unreadable", b"\0" * 4096 + real[:8]),
    ):
        path.write_bytes(left)
        evidence = LogReader(paths).evidence(boot_id=BOOT)
        assert (evidence.status, evidence.receipt, evidence.head) == (status, None, 0)
        assert LogReader(paths).page().events == []
        repair(paths).close()
        assert [event.kind for event in read_all(paths)] == [Kind.RUN_LOG_REPAIRED]
        os.unlink(files_of(paths)[1])
    path.unlink()
    real_elsewhere = tmp_path / "real.log"
    real_elsewhere.write_bytes(real)
    stand_ins: tuple[Callable[[], None], ...] = (
        lambda: path.symlink_to(real_elsewhere),
        lambda: os.mkfifo(path),
        lambda: path.mkdir(),
    )
    for make in stand_ins:
        make()
        assert LogReader(paths).evidence().status == "not_regular"
        assert LogReader(paths).page().events == []  # and no wait for the other end of a FIFO
        with pytest.raises(NotRegularError):
            open_regular(str(path))
        fd = os.open(real_elsewhere, os.O_RDWR)
        with pytest.raises(LogUnusableError) as caught:
            open_for_append(paths, 1, fd, boot_id=BOOT, clock=CountingClock())
        os.close(fd)
        assert caught.value.status == "not_regular"
        if path.is_dir() and not path.is_symlink():
            path.rmdir()
        else:
            path.unlink()


def test_a_log_swapped_under_its_lock_is_refused(tmp_path: Path) -> None:
    path = small_log(tmp_path)
    fd = os.open(path, os.O_RDWR)
    data = path.read_bytes()
    path.unlink()
    path.write_bytes(data)
    with pytest.raises(LogUnusableError):
        open_for_append(paths_in(tmp_path), 1, fd, boot_id=BOOT, clock=CountingClock())
    os.close(fd)


def test_a_last_segment_without_one_good_record_steps_aside(tmp_path: Path) -> None:
    paths = paths_in(tmp_path)
    writer = open_writer(paths, segment_bytes=4096)
    begin(writer)
    for _ in range(8):
        writer.append_output("stdout", b"x" * 1000)
    writer.flush()
    writer.close()
    last = files_of(paths)[-1]
    bytes_before = last.read_bytes()
    last.write_bytes(b"\0" * len(bytes_before))
    repaired = repair(paths, boot=OTHER_BOOT)
    repaired.finish(Kind.RUN_UNKNOWN, {"reason": "x"})
    repaired.close()
    events = read_all(paths)
    check_gapless(events, events[-1].seq)
    assert [event.kind for event in events[-2:]] == [Kind.RUN_LOG_REPAIRED, Kind.RUN_UNKNOWN]
    aside = [path for path in last.parent.iterdir() if ".g" in path.name]
    assert [path.stat().st_size for path in aside] == [len(bytes_before)]
    assert LogReader(paths).evidence().program == {"pid": 11}


def test_a_missing_middle_segment_is_one_dropped_range(tmp_path: Path) -> None:
    paths = paths_in(tmp_path)
    writer = open_writer(paths, segment_bytes=4096)
    for _ in range(30):
        writer.append_output("stdout", b"x" * 1000)
    end(writer)
    before = read_all(paths)
    os.unlink(files_of(paths)[3])
    events = read_all(paths)
    check_gapless(events, 32)
    lost = [event for event in events if event.kind == Kind.OUTPUT_DROPPED]
    assert len(lost) == 1
    assert [event for event in events if event is not lost[0]] == [
        event
        for event in before
        if not (lost[0].detail["first_seq"] <= event.seq <= lost[0].seq)  # type: ignore[operator]
    ]
    assert read_all(paths, limit=1, fresh=True) == events


def test_output_that_looks_like_records_is_never_taken_for_them(tmp_path: Path) -> None:
    """A program prints copies of logs (its own too), then the record around them is damaged."""
    other = small_log(tmp_path, finished=True, run_id="run2").read_bytes()
    paths = paths_in(tmp_path)
    writer = open_writer(paths)
    begin(writer)
    writer.append_output("stdout", other)
    writer.flush()
    own = Path(paths.log(1)).read_bytes()
    writer.append_output("stdout", own + other + form.RECORD_MAGIC * 2000 + own)
    end(writer)
    path = Path(paths.log(1))
    before = read_all(paths)
    whole = path.read_bytes()
    second = whole.index(b'{"offset":%d}' % len(other)) - form.RECORD_SIZE
    first = whole.index(b'{"offset":0}', whole.index(b'"program.released"')) - form.RECORD_SIZE
    for at in (first, second, first + 8, second + 12):
        flip(path, at, 1)
        events = read_all(paths)
        check_gapless(events, 7)
        assert [event for event in events if event.kind != Kind.OUTPUT_DROPPED] == [
            event for event in before if event.seq != (4 if at < second else 5)
        ]
        flip(path, at, 1)
    # The tail: the same, with nothing good behind it.
    os.truncate(path, second + form.RECORD_SIZE + 20 + len(own))
    flip(path, second + 12, 1)
    assert read_all(paths) == before[:4]


def test_a_log_that_cannot_be_read_is_said_to_be(tmp_path: Path) -> None:
    """A directory segment among the others, and a name that leads nowhere."""
    paths = paths_in(tmp_path)
    path = small_log(tmp_path, finished=True)
    os.mkdir(paths.segments_dir(1))
    os.mkdir(paths.segment(1, 7))
    assert LogReader(paths).evidence().status == "not_regular"
    os.rmdir(paths.segment(1, 7))
    os.symlink(path, paths.segment(1, 7))
    evidence = LogReader(paths).evidence()
    assert (evidence.status, evidence.receipt, evidence.head) == ("not_regular", RECEIPT, 6)
    assert len(read_all(paths)) == 6
    with pytest.raises(OSError, match="File name too long") as caught:
        open_regular("x" * 300)
    assert caught.value.errno == errno.ENAMETOOLONG
