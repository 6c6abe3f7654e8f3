"""What fsync(2) was asked for, watched while it is: once a last word counts, nothing before it is lost."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from durable_supervisor.model.events import Kind
from durable_supervisor.runlog.create import read_header
from durable_supervisor.runlog.format import SYNC, salt_of
from durable_supervisor.runlog.scan import Record, Scanner
from durable_supervisor.runlog.writer import LogWriter
from tests.unit.runlog_helpers import MIB, RECEIPT, begin, files_of, open_writer, paths_in, read_all


class Disk:
    """What a power loss would leave at the least: of each file its bytes, of each directory its names,
    as they were at their last sync.  The real calls are made."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.files: dict[int, bytes] = {}
        self.names: dict[int, set[str]] = {}
        self.order: list[int] = []
        for name in ("fsync", "fdatasync"):
            monkeypatch.setattr(os, name, self._watched(getattr(os, name)))

    def _watched(self, real: Callable[[int], None]) -> Callable[[int], None]:
        def sync(fd: int) -> None:
            found = os.fstat(fd)
            if stat.S_ISDIR(found.st_mode):
                self.names[found.st_ino] = set(os.listdir(fd))
            else:
                with open(f"/proc/self/fd/{fd}", "rb") as file:
                    self.files[found.st_ino] = file.read().rstrip(b"\0")
            self.order.append(found.st_ino)
            real(fd)

        return sync

    def has(self, path: Path) -> bool:
        """All but the marks that tell of it."""
        synced = self.files.get(path.stat().st_ino, b"")
        with open(path, "rb") as file:
            header, _ = read_header(file.fileno())
            assert header is not None
            salt = salt_of(header.run_id, header.attempt, 0 if ".seg" not in str(path) else header.first_seq)
            scanner = Scanner(file.fileno(), salt, len(synced), path.stat().st_size)
            since = list(iter(scanner.step, None))
        return path.read_bytes().startswith(synced) and all(
            isinstance(one, Record) and one.rtype == SYNC for one in since
        )

    def has_names(self, directory: Path) -> bool:
        return self.names.get(directory.stat().st_ino) == set(os.listdir(directory))


def flood(writer: LogWriter, count: int) -> None:
    begin(writer)
    for number in range(count):
        writer.append_output("stdout", b"%06d out " % number * 300)
        writer.append_output("stderr", b"%06d err " % number * 100)
        if number % 10 == 0:
            writer.flush()


@pytest.mark.parametrize(("cap", "count"), [(64 * MIB, 3), (64 * MIB, 6000), (200_000, 600)])
def test_everything_is_synced_before_and_with_the_last_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cap: int, count: int
) -> None:
    disk = Disk(monkeypatch)
    paths = paths_in(tmp_path)
    writer = open_writer(paths, cap=cap)
    flood(writer, count)
    assert writer.finish(Kind.RUN_FINISHED, RECEIPT) == read_all(paths)[-1].seq
    files = files_of(paths)
    assert (len(files) > 2) is (count > 3)
    for file in files:
        assert disk.has(file), file.name
    for folder in {file.parent for file in files} | {Path(paths.dir)}:
        assert disk.has_names(folder), folder
    last = files[-1].stat().st_ino
    for file in files[:-1]:  # the receipt speaks of them, so they come first
        assert disk.order.index(file.stat().st_ino) < len(disk.order) - 1 - disk.order[::-1].index(last)
    writer.close()
