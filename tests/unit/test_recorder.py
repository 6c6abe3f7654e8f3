"""A worker's hand on its log: what is to be recorded is recorded, also where a sync has to wait."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from durable_supervisor.model.events import Kind
from durable_supervisor.worker import record
from durable_supervisor.worker.poller import Poller
from durable_supervisor.worker.record import Recorder
from tests.unit.runlog_helpers import open_writer, paths_in, read_all


@contextmanager
def no_descriptors() -> Iterator[None]:
    """Nothing can be opened by this process meanwhile."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.dup(0)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_lack_of_descriptors_puts_off_a_sync_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record, "SYNC_SECONDS", 0.01)
    log, poller = open_writer(paths_in(tmp_path)), Poller()
    recorder = Recorder(log, poller, lambda head: None)
    with no_descriptors():
        recorder.output("stdout", b"x" * (record.SYNC_BYTES + 1))
        recorder.record(Kind.RUN_STOPPING, {"reason": "stop"})
        recorder.flush()
        for _ in range(3):
            poller.turn()  # it tries again, and again
        assert not recorder.had_thread
    while not recorder.had_thread:
        poller.turn()
    recorder.finish(Kind.RUN_FINISHED, {})
    recorder.close()
    log.close()
    assert [event.kind for event in read_all(paths_in(tmp_path))][-2:] == [
        Kind.RUN_STOPPING,
        Kind.RUN_FINISHED,
    ]
