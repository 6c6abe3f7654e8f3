"""Run logs for tests: real files, a clock that only counts, and a few shapes of runs."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

from durable_supervisor.model.events import Event, Kind
from durable_supervisor.process.clock import Clock
from durable_supervisor.runlog.bounds import segment_size
from durable_supervisor.runlog.create import create_log
from durable_supervisor.runlog.files import list_segments
from durable_supervisor.runlog.format import SegmentHeader
from durable_supervisor.runlog.paths import RunPaths
from durable_supervisor.runlog.reader import LogReader
from durable_supervisor.runlog.writer import LogWriter

BOOT, OTHER_BOOT = "boot-1", "boot-2"
DIRECTORY = "dir-1"
RECEIPT: dict[str, object] = {"outcome": {"kind": "exited", "code": 7, "signal": None}, "attempt": 1}
MIB = 1024 * 1024


class CountingClock(Clock):
    """Every look is a microsecond later."""

    def __init__(self) -> None:
        super().__init__()
        self._ticks = itertools.count(1)

    def wall_ns(self) -> int:
        return 1_700_000_000_000_000_000 + next(self._ticks) * 1000

    def elapsed_ns(self) -> int:
        return next(self._ticks) * 1000


def paths_in(directory: Path, run_id: str = "run1") -> RunPaths:
    return RunPaths(str(directory), "0000", run_id)


def header_of(paths: RunPaths, attempt: int = 1, first_seq: int = 1) -> SegmentHeader:
    detail: dict[str, object] = {"serial": 1, "request_id": "r-1", "argv": ["printf", "\udcff"]}
    made_ns = 1_700_000_000_000_000_000
    return SegmentHeader(DIRECTORY, paths.run_id, attempt, first_seq, 1, BOOT, made_ns, detail)


def open_writer(
    paths: RunPaths, *, cap: int = 64 * MIB, stderr_cap: int | None = None, truncate: bool = True,
    attempt: int = 1, first_seq: int = 1, segment_bytes: int | None = None, clock: Clock | None = None,
) -> LogWriter:  # fmt: skip
    header = header_of(paths, attempt, first_seq)
    other = cap if stderr_cap is None else stderr_cap
    return LogWriter(
        create_log(paths, header), paths, header, segment_bytes=segment_bytes or segment_size(cap, other),
        stdout_cap=cap, stderr_cap=other, truncate=truncate, clock=clock or CountingClock(),
    )  # fmt: skip


def begin(writer: LogWriter) -> None:
    """The first three events of every run."""
    writer.append(Kind.RUN_DISPATCHED, {"attempt": 1, "identity": {"pid": 10}, "argv": ["x"]})
    writer.append(Kind.PROGRAM_SPAWNED, {"identity": {"pid": 11}})
    writer.append(Kind.PROGRAM_RELEASED, {})


def end(writer: LogWriter) -> None:
    writer.append(Kind.PROGRAM_EXITED, {"code": 7, "signal": None})
    writer.finish(Kind.RUN_FINISHED, RECEIPT)
    writer.close()


def read_all(paths: RunPaths, attempts: int = 1, *, limit: int = 1000, fresh: bool = False) -> list[Event]:
    """Every event, page by page; ``fresh``: each page by a reader of its own."""
    reader = LogReader(paths, attempts)
    events: list[Event] = []
    after = 0
    while True:
        page = reader.page(after, limit)
        events += page.events
        if page.next_after == after:
            return events
        after = page.next_after
        if fresh:
            reader = LogReader(paths, attempts)


def check_gapless(events: list[Event], head: int) -> None:
    """Each seq of 1..head is answered once, by its event or by a dropped range."""
    expected = 1
    for event in events:
        first = event.detail.get("first_seq", event.seq) if event.kind == Kind.OUTPUT_DROPPED else event.seq
        assert first == expected, (first, expected, event)
        expected = event.seq + 1
    assert expected == head + 1


def files_of(paths: RunPaths, attempt: int = 1) -> list[Path]:
    return [Path(paths.segment_file(attempt, key)) for key in list_segments(paths, attempt)]


def disk_bytes(paths: RunPaths) -> int:
    """Bytes that the run's logs take on the disk, reserved blocks included."""
    return sum(
        os.lstat(os.path.join(root, name)).st_blocks * 512
        for root, _, names in os.walk(paths.dir)
        for name in names
    )


def work_of_this_process() -> dict[str, int]:
    """Bytes and calls of reading and writing so far, as the kernel counts them (proc_pid_io(5))."""
    with open("/proc/self/io", encoding="ascii") as file:
        return {name: int(count) for name, count in (line.split(": ") for line in file)}
