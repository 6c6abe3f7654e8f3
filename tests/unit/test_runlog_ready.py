"""A log's file made ahead: it becomes the log of a new run as a whole, or nobody's."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from durable_supervisor.runlog.create import create_log, read_header
from durable_supervisor.runlog.paths import RunPaths
from durable_supervisor.runlog.ready import make_ready, use_ready
from tests.unit.runlog_helpers import header_of


@pytest.fixture
def paths(tmp_path: Path) -> RunPaths:
    (tmp_path / "0000").mkdir(mode=0o700)
    return RunPaths(str(tmp_path), "0000", "run0000000000001")


@pytest.fixture
def ready(tmp_path: Path) -> Iterator[int]:
    umask = os.umask(0o277)
    try:
        fd = make_ready(str(tmp_path))
    finally:
        os.umask(umask)
    yield fd
    os.close(fd)


def test_it_becomes_a_log_as_any_other(ready: int, tmp_path: Path, paths: RunPaths) -> None:
    assert os.listdir(tmp_path) == ["0000"], "nobody finds it before"
    assert os.listdir(paths.dir) == []
    assert use_ready(ready, paths, header_of(paths))
    log = os.lstat(paths.log(1))
    assert os.path.samestat(os.fstat(ready), log)
    assert (log.st_mode, log.st_nlink) == (stat.S_IFREG | 0o600, 1)
    assert read_header(ready)[0] == header_of(paths)


@pytest.mark.parametrize("there", ["a log", "a symlink to nothing"])
def test_no_log_is_ever_replaced_by_one(ready: int, paths: RunPaths, there: str) -> None:
    log = Path(paths.log(1))
    if there == "a log":
        os.close(create_log(paths, header_of(paths)))
    else:
        log.symlink_to("nowhere")
    before = log.lstat()
    assert not use_ready(ready, paths, header_of(paths))
    assert log.lstat() == before
    assert os.fstat(ready).st_nlink == 0


def test_the_first_of_a_shard_is_made_in_its_turn(ready: int, tmp_path: Path) -> None:
    paths = RunPaths(str(tmp_path), "0001", "run0000000000001")
    assert not use_ready(ready, paths, header_of(paths))
    assert os.listdir(tmp_path) == []


def test_where_no_file_is_without_a_name_there_is_none() -> None:
    """procfs is such a file system."""
    with pytest.raises(OSError, match=r"not permitted|not supported|Is a directory"):
        make_ready("/proc/self")
