"""``collected.log`` itself: torn, damaged and replaced, it says what it can prove and nothing else."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest

from durable_supervisor.runlog.collected import CollectedLog, Mark
from durable_supervisor.runlog.files import NotRegularError


def told(log: CollectedLog, after: Mark | None = None) -> list[object]:
    return [None if line.document is None else line.document["n"] for line in log.lines(after)]


def test_lines_are_read_behind_a_mark(tmp_path: Path) -> None:
    log = CollectedLog(str(tmp_path))
    assert log.is_at(None)
    assert told(log) == []
    first = log.append([{"n": 1}, {"n": 2}])
    second = log.append([{"n": "\udcff"}])
    assert told(log) == [1, 2, "\udcff"]
    assert told(log, first) == ["\udcff"]
    assert told(log, second) == []
    assert (log.is_at(first), log.is_at(second), log.is_at(None)) == (False, True, False)
    assert Mark.parse(str(second)) == second
    assert [Mark.parse(text) for text in (None, "", "1:2", "a:b:c")] == [None] * 4
    assert os.stat(log.path).st_mode & 0o777 == 0o600


@pytest.mark.parametrize("cut", range(1, 40, 3))
def test_a_torn_line_is_skipped_and_ended_by_the_next(tmp_path: Path, cut: int) -> None:
    log = CollectedLog(str(tmp_path))
    first = log.append([{"n": 1}])
    log.append([{"n": 2, "more": "x" * 20}])
    path = Path(log.path)
    path.write_bytes(path.read_bytes()[:-cut])
    assert told(log, first) == [None]
    log.append([{"n": 3}])
    second = 2 if cut == 1 else None  # nothing but its end was missing
    assert told(log) == [1, second, 3]
    assert told(log, first) == [second, 3]


def test_every_changed_byte_is_noticed(tmp_path: Path) -> None:
    log = CollectedLog(str(tmp_path))
    mark = log.append([{"n": 1}])
    path = Path(log.path)
    whole = path.read_bytes()
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        assert set(told(log)) == {None}, at
        assert not log.is_at(mark)
        assert not log.has(mark)


def test_a_mark_of_another_file_is_none_of_this(tmp_path: Path) -> None:
    log = CollectedLog(str(tmp_path))
    log.append([{"n": 1}])
    mark = log.append([{"n": 2}])
    Path(log.path).unlink()
    assert not log.has(mark)
    assert told(log, mark) == []
    log.append([{"n": 7}])
    log.append([{"n": 8}])
    log.append([{"n": 9}])
    assert not log.has(mark)
    assert told(log, mark) == [7, 8, 9]


def test_a_full_disk_is_given_back_what_was_written(tmp_path: Path) -> None:
    log, path = CollectedLog(str(tmp_path)), tmp_path / "collected.log"
    log.append([{"n": 1}])
    before, limits = path.read_bytes(), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 30, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            log.append([{"n": number} for number in range(9)])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert path.read_bytes() == before


@pytest.mark.parametrize("kind", ["link", "fifo", "directory"])
def test_what_is_no_file_is_not_written(tmp_path: Path, kind: str) -> None:
    log = CollectedLog(str(tmp_path))
    (tmp_path / "theirs").write_text("x")
    if kind == "link":
        os.symlink(tmp_path / "theirs", log.path)
    elif kind == "fifo":
        os.mkfifo(log.path)
    else:
        os.mkdir(log.path)
    with pytest.raises((NotRegularError, OSError)):
        log.append([{"n": 1}])
    with pytest.raises((NotRegularError, OSError)):
        log.is_at(None)
    assert (tmp_path / "theirs").read_text() == "x"
