"""A last word counts once it is on the disk: by the writer's mark, or by the reader's own sync."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from durable_supervisor.model.events import Kind
from durable_supervisor.process.locks import try_lock
from durable_supervisor.runlog.durable import make_durable
from durable_supervisor.runlog.evidence import read_evidence
from durable_supervisor.runlog.paths import RunPaths
from durable_supervisor.runlog.reader import LogReader
from durable_supervisor.runlog.repair import open_for_append
from durable_supervisor.runlog.writer import LogWriter
from tests.unit.runlog_helpers import (
    BOOT,
    OTHER_BOOT,
    RECEIPT,
    CountingClock,
    begin,
    files_of,
    open_writer,
    paths_in,
)
from tests.unit.test_runlog_durable import Disk

HEAD = 4  # of what `begin` appends, and the last word


def unfinished(paths: RunPaths, *, segment_bytes: int | None = None) -> LogWriter:
    """A log whose last word is appended and not synced; the writer has its file, and nobody its lock."""
    writer = open_writer(paths, segment_bytes=segment_bytes)
    begin(writer)
    writer.append(Kind.RUN_FINISHED, RECEIPT)
    writer.flush()
    return writer


def resumed(paths: RunPaths, boot_id: str) -> LogWriter:
    fd = os.open(paths.log(1), os.O_RDWR)
    return open_for_append(paths, 1, fd, boot_id=boot_id, clock=CountingClock())


def told(reader: LogReader, after: int = 0) -> tuple[list[str], int, bool]:
    page = reader.page(after, sure=True)
    return [event.kind for event in page.events], page.head, page.end


@contextmanager
def held(paths: RunPaths, attempt: int = 1) -> Iterator[None]:
    """Somebody has the log's lock, as a worker does while it is there."""
    fd = os.open(paths.log(attempt), os.O_RDWR)
    try:
        assert try_lock(fd)
        yield
    finally:
        os.close(fd)


def test_a_marked_word_is_told_to_whoever_asks(tmp_path: Path) -> None:
    paths = paths_in(tmp_path)
    writer = open_writer(paths)
    begin(writer)
    assert not read_evidence(paths, 1).word_synced  # there is none
    writer.finish(Kind.RUN_FINISHED, RECEIPT)
    with held(paths):
        assert read_evidence(paths, 1).word_synced
        assert told(LogReader(paths), HEAD - 1) == ([Kind.RUN_FINISHED], HEAD, True)
    writer.close()


def test_a_word_that_its_writer_is_still_at_is_not_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = paths_in(tmp_path)
    writer = unfinished(paths)
    disk = Disk(monkeypatch)
    reader = LogReader(paths)
    with held(paths):
        kinds, head, end = told(reader)
        assert (Kind.RUN_FINISHED in kinds, len(kinds), head, end) == (False, HEAD - 1, HEAD - 1, False)
        assert reader.is_ending()
        assert reader.page(sure=False).end  # for whom it is enough to see what there is
        assert disk.order == []
    assert not reader.is_ending()
    assert told(reader, HEAD - 1) == ([Kind.RUN_FINISHED], HEAD, True)
    writer.close()


@pytest.mark.parametrize("segment_bytes", [None, 100])
def test_the_word_of_a_writer_that_is_gone_is_synced_by_its_reader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, segment_bytes: int | None
) -> None:
    paths = paths_in(tmp_path)
    writer = unfinished(paths, segment_bytes=segment_bytes)
    disk = Disk(monkeypatch)
    reader = LogReader(paths)
    assert told(reader, HEAD - 1) == ([Kind.RUN_FINISHED], HEAD, True)
    files = files_of(paths)
    assert len(files) == (1 if segment_bytes is None else HEAD)
    assert all(disk.has(file) for file in files)
    assert all(disk.has_names(folder) for folder in {file.parent for file in files} | {Path(paths.dir)})
    synced = len(disk.order)
    assert told(reader, HEAD - 1) == ([Kind.RUN_FINISHED], HEAD, True)
    assert len(disk.order) == synced  # once is enough
    writer.close()


def test_what_cannot_be_brought_to_the_disk_is_not_told(tmp_path: Path) -> None:
    paths = paths_in(tmp_path)
    unfinished(paths, segment_bytes=100).close()
    [*_, last] = files_of(paths)
    reader = LogReader(paths)
    reader.page(HEAD - 1)
    last.rename(tmp_path / "elsewhere")
    last.symlink_to(tmp_path / "elsewhere")  # a descriptor of it is not to be had
    assert not make_durable(paths, 1)
    last.unlink()
    (tmp_path / "elsewhere").rename(last)
    assert make_durable(paths, 1)


@pytest.mark.parametrize("boot_id", [BOOT, OTHER_BOOT])
def test_whoever_writes_on_marks_the_word_before(tmp_path: Path, boot_id: str) -> None:
    """In the same segment, or in a new one whose header alone carries the word."""
    paths = paths_in(tmp_path)
    unfinished(paths).close()
    reader = LogReader(paths)
    reader.page(HEAD)
    assert not read_evidence(paths, 1).word_synced
    writer = resumed(paths, boot_id)
    with held(paths):
        assert reader.is_ending()
        writer.finish(Kind.RUN_RESOLVED, {"action": "accept"})
        assert read_evidence(paths, 1).word_synced
        assert read_evidence(paths, 1, deep=True).word_synced
        assert not reader.is_ending()
    writer.close()


def test_the_word_of_an_earlier_attempt_is_past(tmp_path: Path) -> None:
    paths = paths_in(tmp_path)
    writer = open_writer(paths)
    writer.append(Kind.RUN_NOT_STARTED, {"reason": "ENOENT"})
    writer.flush()
    again = open_writer(paths, attempt=2, first_seq=2)
    begin(again)
    again.append(Kind.RUN_FINISHED, RECEIPT)
    again.flush()
    with held(paths, 2):
        kinds, head, end = told(LogReader(paths, 2))
    assert (kinds[0], len(kinds), head, end) == (Kind.RUN_NOT_STARTED, HEAD, HEAD, False)
    for one in (writer, again):
        one.close()
