"""Why no worker could be started, as evidence: else the run would merely seem to have lost one."""

from __future__ import annotations

import errno
import os
import sys
from contextlib import suppress

from ...model.events import Kind
from ...process import forks
from ...process.clock import Clock, boot_id
from ...runlog.create import read_header
from ...runlog.paths import RunPaths
from ...runlog.repair import LogUnusableError, open_for_append
from ...runlog.writer import LogFullError

STEP = "worker"


def record(log: int, log_path: str, error: OSError) -> None:
    """Into the run's log, whose lock the caller holds and keeps: nobody else writes, or ever will.

    Left out where the log cannot be written.
    """
    with suppress(OSError, LogFullError, LogUnusableError):
        _record(log, log_path, error)


def _record(log: int, log_path: str, error: OSError) -> None:
    header, _ = read_header(log)
    if header is None:
        return
    runs_dir, shard = os.path.split(os.path.dirname(log_path))
    fd = forks.opened(lambda: os.dup(log))
    try:
        writer = open_for_append(
            RunPaths(runs_dir, shard, header.run_id), header.attempt, fd, boot_id=boot_id(), clock=Clock()
        )
    except BaseException:
        forks.close(fd)
        raise
    number = error.errno or errno.EIO
    name = errno.errorcode.get(number, f"E{number}")
    detail: dict[str, object] = {"errno": number, "error": name, "step": STEP, "path": sys.executable}
    writer.append(Kind.PROGRAM_EXEC_FAILED, detail)
    try:
        writer.flush()
    finally:
        writer.close()
