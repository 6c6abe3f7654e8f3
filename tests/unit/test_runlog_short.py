"""The log of a short run that is over, read at once: as the long way reads it, or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from durable_supervisor.model.events import Kind
from durable_supervisor.runlog.evidence import LogEvidence, read_evidence, read_short
from durable_supervisor.runlog.files import open_regular
from durable_supervisor.runlog.paths import RunPaths
from durable_supervisor.runlog.writer import LogWriter
from tests.unit.runlog_helpers import DIRECTORY, RECEIPT, open_writer, paths_in


def short(paths: RunPaths, directory_id: str = DIRECTORY) -> LogEvidence | None:
    fd, _ = open_regular(paths.log(1))
    try:
        return read_short(fd, paths, 1, directory_id=directory_id)
    finally:
        os.close(fd)


def said(evidence: LogEvidence) -> dict[str, object]:
    return {name: getattr(evidence, name) for name in LogEvidence.__slots__ if name != "header"}


def begun(paths: RunPaths, output: bytes = b"out\n") -> LogWriter:
    log = open_writer(paths)
    log.append(Kind.RUN_DISPATCHED, {"attempt": 1, "identity": {"pid": 1}})
    log.append(Kind.PROGRAM_RELEASED, {})
    log.append_output("stdout", output)
    log.append(Kind.PROGRAM_EXITED, {"code": 7, "signal": None})
    return log


def ended(paths: RunPaths, output: bytes = b"out\n") -> Path:
    log = begun(paths, output)
    log.finish(Kind.RUN_FINISHED, RECEIPT)
    log.close()
    return Path(paths.log(1))


def test_a_short_log_says_the_same_both_ways(tmp_path: Path) -> None:
    paths = paths_in(tmp_path)
    ended(paths)
    at_once = short(paths)
    assert at_once is not None
    assert at_once.receipt == RECEIPT
    assert at_once.word_synced
    assert said(at_once) == said(read_evidence(paths, 1, directory_id=DIRECTORY))


def test_one_that_is_not_over_is_left_to_the_long_way(tmp_path: Path) -> None:
    paths = paths_in(tmp_path)
    log = begun(paths)
    log.flush()
    assert short(paths) is None
    log.close()


def test_one_whose_receipt_may_not_be_on_the_disk_as_well(tmp_path: Path) -> None:
    paths = paths_in(tmp_path)
    log = begun(paths)
    log.append(Kind.RUN_FINISHED, RECEIPT)
    log.flush()
    log.close()
    assert short(paths) is None


@pytest.mark.parametrize("word", [Kind.RUN_NOT_STARTED, Kind.RUN_UNKNOWN])
def test_a_last_word_that_is_no_receipt_as_well(tmp_path: Path, word: str) -> None:
    paths = paths_in(tmp_path)
    log = begun(paths)
    log.finish(word, {"reason": "lost"})
    log.close()
    assert short(paths) is None


def test_a_long_one_as_well(tmp_path: Path) -> None:
    paths = paths_in(tmp_path)
    ended(paths, b"x" * 20_000)
    assert short(paths) is None
    assert read_evidence(paths, 1).receipt == RECEIPT


def test_another_directorys_as_well(tmp_path: Path) -> None:
    paths = paths_in(tmp_path)
    ended(paths)
    assert short(paths, "dir-2") is None


def test_a_byte_that_was_changed_anywhere_is_not_passed_over(tmp_path: Path) -> None:
    """Either it says the same as before, or nothing; the long way tells what is wrong."""
    paths = paths_in(tmp_path)
    path = ended(paths)
    whole = path.read_bytes()
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        try:
            assert short(paths) is None, at
        except OSError:
            pass  # the next good record is to be looked for in the file itself
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        try:
            assert short(paths) is None, length
        except OSError:
            pass
