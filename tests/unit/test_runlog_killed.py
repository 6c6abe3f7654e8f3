"""A writer killed in full flood: what was flushed is there, whatever it was doing."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from durable_supervisor.model.events import Kind
from durable_supervisor.runlog.reader import LogReader
from tests.conftest import eventually
from tests.unit.runlog_helpers import BOOT, begin, check_gapless, open_writer, paths_in, read_all
from tests.unit.test_runlog_damage import repair

_FLOOD = """
import sys
from pathlib import Path
from tests.unit.runlog_helpers import *
writer = open_writer(paths_in(Path(sys.argv[1])), cap=int(sys.argv[2]), segment_bytes=8192)
begin(writer)
told = open(sys.argv[3], "wb", buffering=0)
index = 0
while True:
    for stream in ("stdout", "stderr"):
        writer.append_output(stream, b"%08d" % index * 60)
    if index % 100 == 0:
        writer.append("run.warning", {"n": index})
    writer.flush()
    if index % 70 == 0:
        writer.sync()
    told.write(b"%020d" % writer.head)
    index += 1
"""


@pytest.mark.parametrize("cap", [30_000, 100_000, 1 << 30])
def test_a_writer_killed_in_full_flood(tmp_path: Path, cap: int) -> None:
    paths = paths_in(tmp_path)
    told = tmp_path / "told"
    process = subprocess.Popen(
        [sys.executable, "-c", _FLOOD, str(tmp_path), str(cap), str(told)],
        env={**os.environ, "PYTHONPATH": "src:."},
    )
    try:
        wanted = random.randrange(20 * 1000, 20 * 2000, 20)
        eventually(lambda: told.exists() and told.stat().st_size > wanted, timeout=60)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    heads = told.read_bytes()
    flushed = int(heads[: len(heads) // 20 * 20][-20:])  # a kill may come between two pages of a write, too
    events = read_all(paths)
    head = LogReader(paths).page().head
    check_gapless(events, head)
    assert head >= flushed
    assert read_all(paths, limit=3, fresh=True) == events
    numbers = [event.detail["n"] for event in events if event.kind == "run.warning"]
    assert numbers == list(range(0, len(numbers) * 100, 100))
    drops = [event.detail for event in events if event.kind == Kind.OUTPUT_DROPPED]
    assert {drop["reason"] for drop in drops} <= {"limit"}
    evidence = LogReader(paths).evidence(boot_id=BOOT, deep=True)
    assert evidence.program == {"pid": 11}
    assert evidence.released
    assert {found["class"] for found in evidence.damage} <= {"torn_tail"}
    writer = repair(paths)
    writer.finish(Kind.RUN_UNKNOWN, {"reason": "worker_lost"})
    writer.close()
    after = read_all(paths)
    assert after[: len(events)] == events
    assert after[-1].kind == Kind.RUN_UNKNOWN


def test_facts_survive_the_segments_that_told_them(tmp_path: Path) -> None:
    """Power loss can take a segment that no sync had covered; the next one's header repeats what counts."""
    paths = paths_in(tmp_path)
    writer = open_writer(paths, segment_bytes=4096)
    begin(writer)
    writer.append(Kind.RUN_STOPPING, {"reason": "stop"})
    for _ in range(20):
        writer.append_output("stdout", b"x" * 1000)
    writer.flush()
    writer.close()
    first = Path(paths.log(1))
    first.write_bytes(bytes(first.stat().st_size))
    evidence = LogReader(paths).evidence(boot_id=BOOT)
    assert (evidence.status, evidence.worker, evidence.released) == ("ok", {"pid": 10}, True)
    assert evidence.stopping == {"reason": "stop"}
    check_gapless(read_all(paths), 24)
