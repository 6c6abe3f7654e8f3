"""A real small file system that is full, or read-only, from a named step of a run on.

Whoever stands at that step is killed -9 together with the owner, or goes on as well as it can: the directory
opens again, what was refused was refused with a typed error, and no outcome is invented.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.crash.harness import ROOT
from tests.crash.test_matrix import HOST, WORKER
from tests.lab.disk import small
from tests.lab.forms import FULL

pytestmark = [
    pytest.mark.skipif(
        os.geteuid() != 0 or shutil.which("unshare") is None, reason="mounting a small file system needs root"
    ),
    pytest.mark.timeout(1800 if FULL else 400),
]
SIZE = "64m"
STEPS = ("start.committed", "worker.released", "worker.before_receipt")


def on_a_small_disk(tmp_path: Path, plan: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What became of each experiment; none may have broken a guarantee."""
    mount = tmp_path / "mount"
    mount.mkdir()
    enters = 'mount -t tmpfs -o size="$1" none "$2" && shift 2 && exec "$@"'
    apart = ["unshare", "--mount", "--propagation", "private", "sh", "-c", enters, "sh", SIZE, str(mount)]
    command = [*apart, sys.executable, str(small.__file__), str(mount), json.dumps(plan)]
    env = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"}
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=env, check=False)
    if not done.stdout and any(word in done.stderr for word in ("ermission denied", "not permitted")):
        pytest.skip("no right to mount here")
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(found) == len(plan)
    broken = [f"{one['name']}:\n{one['broken']}" for one in found if "broken" in one]
    assert not broken, "\n".join([f"{len(broken)} of {len(found)}", *broken])
    return found


def steps() -> list[str]:
    """Every step of a worker and of a host, but those that only output of many segments comes to."""
    beyond = ("log.roll", "log.compact", "program.", "worker.sync")
    named = [name for name in (*WORKER, *HOST) if not name.startswith(beyond)]
    return named if FULL else list(STEPS)


def test_killed_while_the_disk_is_full(tmp_path: Path) -> None:
    found = on_a_small_disk(tmp_path, [{"name": name, "kill": True, "bad": "full"} for name in steps()])
    tell(found)


def test_going_on_while_the_disk_is_full(tmp_path: Path) -> None:
    """Every run that was accepted comes to its true end: space for that was set aside."""
    found = on_a_small_disk(tmp_path, [{"name": name, "kill": False, "bad": "full"} for name in steps()])
    tell(found)


def test_read_only_after_the_kill(tmp_path: Path) -> None:
    chosen = steps() if FULL else ["worker.exited"]
    found = on_a_small_disk(tmp_path, [{"name": name, "kill": True, "bad": "read_only"} for name in chosen])
    tell(found)


def tell(found: list[dict[str, Any]]) -> None:
    for one in found:
        print(f"{one['bad']} at {one['name']}: {', '.join(one['while bad'])}; then {one['settled']}")
