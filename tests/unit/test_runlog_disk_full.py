"""A full disk: output is dropped and counted, lifecycle records and the receipt still get in.

Needs root, to mount a small tmpfs in a mount namespace of its own.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("unshare") is None, reason="mounting a small file system needs root"
)

_PROLOGUE = """
import json, os, sys
from pathlib import Path
from durable_supervisor.model.events import Kind
from durable_supervisor.runlog.reader import LogReader
from durable_supervisor.runlog.writer import LogFullError
from tests.unit.runlog_helpers import *
mount = Path(sys.argv[1])

def fill():
    with open(mount / "filler", "ab", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            pass

def free():
    (mount / "filler").unlink(missing_ok=True)

def report(paths, writer):
    events = read_all(paths)
    check_gapless(events, writer.head)
    assert read_all(paths, limit=1, fresh=True) == events
    drops = [event.detail for event in events if event.kind == Kind.OUTPUT_DROPPED]
    told = sum(drop["bytes"] for drop in drops)
    stored = sum(len(event.data) for event in events if event.kind == Kind.OUTPUT)
    assert told == writer.dropped("stdout") + writer.dropped("stderr")
    assert stored == writer.stored("stdout") + writer.stored("stderr")
    evidence = LogReader(paths).evidence(deep=True)
    assert evidence.damage == []
    print(json.dumps({"receipt": evidence.receipt, "reasons": sorted({drop["reason"] for drop in drops}),
                      "drops": len(drops), "told": told, "kinds": sorted({event.kind for event in events})}))
"""


def on_small_disk(tmp_path: Path, script: str, size: str = "2m") -> dict[str, object]:
    mount = tmp_path / "small"
    mount.mkdir()
    program = tmp_path / "program.py"
    program.write_text(_PROLOGUE + script)
    done = subprocess.run(
        [
            "unshare", "--mount", "--propagation", "private", "sh", "-c",
            'mount -t tmpfs -o size="$1" none "$2" && exec "$3" "$4" "$2"',
            "sh", size, str(mount), sys.executable, str(program),
        ],
        capture_output=True, text=True, env={**os.environ, "PYTHONPATH": "src:."}, check=False,
    )  # fmt: skip
    if not done.stdout and any(word in done.stderr for word in ("ermission denied", "not permitted")):
        pytest.skip("no right to mount here")
    assert done.returncode == 0, done.stderr
    answer: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return answer


RECEIPT = {"outcome": {"kind": "exited", "code": 7, "signal": None}, "attempt": 1}


def test_a_flood_onto_a_full_disk_ends_with_a_receipt(tmp_path: Path) -> None:
    answer = on_small_disk(
        tmp_path,
        """
paths = paths_in(mount)
writer = open_writer(paths)
begin(writer)
fill()
for index in range(200):
    writer.append_output("stdout", b"x" * 65536)
    writer.append_output("stderr", b"y" * 100)
    writer.flush()
assert writer.full
writer.append(Kind.RUN_STOPPING, {"reason": "stop"})
end(writer)
report(paths, writer)
""",
    )
    assert answer["receipt"] == RECEIPT
    assert answer["reasons"] == ["disk_full"]
    assert answer["drops"] == 2


def test_output_goes_on_when_space_is_back(tmp_path: Path) -> None:
    answer = on_small_disk(
        tmp_path,
        """
paths = paths_in(mount)
writer = open_writer(paths, segment_bytes=64 * 1024, clock=CountingClock())
begin(writer)
for round in range(3):
    for _ in range(10):
        writer.append_output("stdout", b"x" * 1000)
        writer.flush()
    fill()
    for _ in range(200):
        writer.append_output("stdout", b"lost" * 5000)
        writer.flush()
    assert writer.full
    free()
    while writer.full:
        writer.append_output("stdout", b"again")
    writer.flush()
end(writer)
report(paths, writer)
""",
    )
    assert answer["receipt"] == RECEIPT
    assert answer["drops"] == 3


def test_a_cap_on_a_full_disk(tmp_path: Path) -> None:
    """Neither rolling nor compacting is possible, and later it is."""
    answer = on_small_disk(
        tmp_path,
        """
paths = paths_in(mount)
writer = open_writer(paths, cap=256 * 1024)
begin(writer)
for index in range(100):
    writer.append_output("stdout", b"x" * 8192)
    writer.flush()
    if index == 40:
        fill()
    if index == 80:
        free()
        for _ in range(200_000):
            writer.append_output("stdout", b"")
            writer._clock.elapsed_ns()
end(writer)
report(paths, writer)
assert writer.stored("stdout") <= 256 * 1024
""",
    )
    assert answer["receipt"] == RECEIPT
    assert set(answer["reasons"]) <= {"disk_full", "limit"}  # type: ignore[call-overload]


def test_a_short_run_has_room_for_its_last_words_without_a_reserve(tmp_path: Path) -> None:
    answer = on_small_disk(
        tmp_path,
        """
paths = paths_in(mount)
writer = open_writer(paths)
begin(writer)
writer.flush()
assert disk_bytes(paths) <= 4096
fill()
writer.append(Kind.PROGRAM_EXITED, {"code": 0, "signal": None})
writer.flush()
writer.finish(Kind.RUN_FINISHED, RECEIPT)
writer.close()
assert disk_bytes(paths) <= 4096
report(paths, writer)
""",
    )
    assert answer["receipt"] == RECEIPT
    assert answer["drops"] == 0


def test_a_run_that_lasts_has_room_for_more(tmp_path: Path) -> None:
    answer = on_small_disk(
        tmp_path,
        """
paths = paths_in(mount)
writer = open_writer(paths)
begin(writer)
writer.flush()
writer.keep_whole_reserve()
fill()
for n in range(10):
    writer.append("run.warning", {"n": n, "text": "w" * 1000})
    writer.flush()
writer.finish(Kind.RUN_FINISHED, RECEIPT)
writer.close()
report(paths, writer)
""",
    )
    assert answer["receipt"] == RECEIPT


def test_not_even_the_reserve_is_left(tmp_path: Path) -> None:
    """Then the writer says so, keeps what it has, and goes on later."""
    answer = on_small_disk(
        tmp_path,
        """
paths = paths_in(mount)
writer = open_writer(paths)
begin(writer)
writer.keep_whole_reserve()
fill()
tries = 0
while True:
    writer.append("run.warning", {"n": tries, "text": "w" * 1000})
    tries += 1
    try:
        writer.flush()
    except LogFullError:
        break
    assert tries < 2000
assert tries > 5
before = read_all(paths)
for _ in range(3):
    try:
        writer.finish(Kind.RUN_FINISHED, RECEIPT)
        raise SystemExit("it cannot")
    except LogFullError:
        pass
assert read_all(paths) == before
assert LogReader(paths).evidence().receipt is None
free()
writer.finish(Kind.RUN_FINISHED, RECEIPT)
writer.close()
report(paths, writer)
assert [event.detail["n"] for event in read_all(paths) if event.kind == "run.warning"] == list(range(tries))
""",
    )
    assert answer["receipt"] == RECEIPT
    assert answer["drops"] == 0


def test_no_log_is_left_where_none_could_be_made(tmp_path: Path) -> None:
    answer = on_small_disk(
        tmp_path,
        """
os.mkdir(mount / "0000")
fill()
paths = paths_in(mount)
try:
    open_writer(paths)
    raise SystemExit("it cannot")
except OSError:
    pass
assert os.listdir(paths.dir) == []
free()
writer = open_writer(paths)
end(writer)
report(paths, writer)
""",
    )
    assert answer["receipt"] == RECEIPT
