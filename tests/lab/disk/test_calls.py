"""Each single call to the disk, of owner and worker, fails, is cut short, or is the last of its process.

Whatever it was: errors are typed, the directory opens afterwards, nothing is executed twice, and what is
told of the run is what its program wrote down.
"""

from __future__ import annotations

import errno
import itertools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from durable_supervisor import ErrorCode
from tests.crash.harness import ROOT, end_all
from tests.crash.world import check_guarantees
from tests.lab.disk import driver
from tests.lab.disk.driver import EVERY
from tests.lab.disk.faults import Action, Call, Faults, Role
from tests.lab.disk.replay import read_trace
from tests.lab.forms import FULL

FOR_GOOD = -1
LASTING = ("finished", "not_started")
LONG = 1800  # seconds; a sweep takes one or two minutes of a quiet machine
PROGRESS = 25


@dataclass(frozen=True)
class Sweep:
    """A strike at every call of somebody; ``settled``: how the run may end then."""

    action: Action
    role: Role
    error: int = 0
    times: int = 1
    loud: bool = False
    made: bool = True
    settled: tuple[str, ...] = EVERY

    def strikes(self, *calls: int) -> list[dict[str, Any]]:
        """At these calls, or at every one."""
        words = {"action": self.action, "role": self.role, "error": self.error, "times": self.times}
        words |= {"loud": self.loud, "made": self.made}
        return [{**words, "skip": call} for call in calls] or [words]


FAIL, SHORT, DIE, DIE_TORN = Action.FAIL, Action.SHORT, Action.DIE, Action.DIE_TORN
OWNER, WORKER = Role.OWNER, Role.WORKER
SWEEPS = {
    "a call of who makes the directory gets EIO": Sweep(FAIL, OWNER, errno.EIO, made=False),
    "a write of who makes the directory is short": Sweep(SHORT, OWNER, made=False),
    "a call of the owner gets EIO": Sweep(FAIL, OWNER, errno.EIO),
    "a call of the owner gets ENOSPC": Sweep(FAIL, OWNER, errno.ENOSPC),
    "a call of the owner gets EROFS": Sweep(FAIL, OWNER, errno.EROFS),
    "every call of the owner gets EIO from then on": Sweep(FAIL, OWNER, errno.EIO, times=FOR_GOOD),
    "a write of the owner is short": Sweep(SHORT, OWNER),
    # From its release on a run keeps its outcome; before it, that it never ran is known.
    "a call of the worker gets EIO": Sweep(FAIL, WORKER, errno.EIO, settled=LASTING),
    "a call of the worker gets ENOSPC": Sweep(FAIL, WORKER, errno.ENOSPC, settled=LASTING),
    "every call of the worker gets EIO for a while": Sweep(
        FAIL, WORKER, errno.EIO, times=FOR_GOOD, settled=LASTING
    ),
    "a call of a loud worker gets EIO": Sweep(FAIL, WORKER, errno.EIO, loud=True, settled=LASTING),
    "a call of a loud worker gets ENOSPC": Sweep(FAIL, WORKER, errno.ENOSPC, loud=True, settled=LASTING),
    "a write of the worker is short": Sweep(SHORT, WORKER, loud=True, settled=("finished",)),
    "the worker dies before a call": Sweep(DIE, WORKER),
    "the worker dies in a write": Sweep(DIE_TORN, WORKER),
    "a loud worker dies before a call": Sweep(DIE, WORKER, loud=True),
    "a loud worker dies in a write": Sweep(DIE_TORN, WORKER, loud=True),
}
# Where something was found once, and a few more.
SAMPLE = {
    "a call of who makes the directory gets EIO": [20, 33],
    "a call of the owner gets EIO": [4, 12, 40],
    "a call of the owner gets ENOSPC": [8],
    "a call of the worker gets EIO": [2, 5],
    "a call of a loud worker gets ENOSPC": [8],
    "a loud worker dies in a write": [11],
}
SHARD_SYNC = 2  # the owner's call that brings the name of a new shard to the disk
# Of an owner in an empty directory, and in one that is made: which ones are its last ones, if not all.
LAST_CALLS = {(DIE, False): [20], (DIE, True): [], (DIE_TORN, False): [], (DIE_TORN, True): [10]}


@pytest.fixture
def faults(tmp_path: Path) -> Iterator[Faults]:
    found = Faults(tmp_path, tmp_path / "disks")
    yield found
    found.close()


def drive(faults: Faults, folder: Path, plan: list[dict[str, Any]]) -> subprocess.Popen[str]:
    env = {**os.environ, **faults.environment(Role.OWNER), "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"}
    command = [sys.executable, str(driver.__file__), str(folder), json.dumps(plan)]
    with open(folder / "errors", "wb") as errors:
        return subprocess.Popen(command, env=env, cwd=ROOT, stdout=subprocess.PIPE, stderr=errors, text=True)


def experiments(
    faults: Faults, folder: Path, plan: list[dict[str, Any]], name: str = ""
) -> list[dict[str, Any]]:
    """What became of each; none may have broken a guarantee.  With ``name`` how far it is gets printed."""
    found: list[dict[str, Any]] = []
    with drive(faults, folder, plan) as driven:
        assert driven.stdout is not None
        for line in driven.stdout:
            found.append(json.loads(line))
            if name and len(found) % PROGRESS == 0:
                print(f"{name}: {len(found)} so far", flush=True)
    said = (folder / "errors").read_text()
    assert driven.returncode == 0, said
    assert "never retrieved" not in said, "an error that nobody heard"
    broken = [one for one in found if "broken" in one]
    assert not broken, f"{len(broken)} of {len(found)}, first:\n{json.dumps(broken[0], indent=1)}"
    return found


async def test_a_sample_of_the_calls(faults: Faults, tmp_path: Path) -> None:
    plan = [strike for name, calls in SAMPLE.items() for strike in SWEEPS[name].strikes(*calls)]
    names = [name for name, calls in SAMPLE.items() for _ in calls]
    found = experiments(faults, tmp_path, plan)
    for name, one in zip(names, found, strict=True):
        assert one["call"], (name, "there is no such call any more")
        assert one["settled"] in SWEEPS[name].settled, one
    assert ErrorCode.JOURNAL_IO.value in {one.get("refused") for one in found}


def test_a_shard_is_synced_before_it_has_a_log(tmp_path: Path) -> None:
    """Also where that fails at first, and the start tries again: no worker syncs it."""
    faults = Faults(tmp_path, tmp_path / "disks", traced=True)
    [found] = experiments(faults, tmp_path, SWEEPS["a call of the owner gets EIO"].strikes(SHARD_SYNC))
    assert (found["call"], found["settled"]) == ("sync_dir", "finished"), "there is no such call any more"
    assert faults.trace is not None
    calls = [(step.call, Path(step.path).name) for step in read_trace(faults.trace)]
    made = calls.index((Call.MKDIR, "0000"))
    log = next(i for i, (call, name) in enumerate(calls) if call is Call.CREATE and name.endswith(".a1.log"))
    assert (Call.SYNC_DIR, "runs") in calls[made:log]
    faults.close()


@pytest.mark.skipif(not FULL, reason="a sample is taken above; `make lab` takes all")
@pytest.mark.timeout(LONG)
@pytest.mark.parametrize("name", SWEEPS)
def test_each_call(faults: Faults, tmp_path: Path, name: str) -> None:
    sweep = SWEEPS[name]
    found = experiments(faults, tmp_path, sweep.strikes(), name)
    report(name, found)
    assert {one["settled"] for one in found} <= set(sweep.settled)


@pytest.mark.timeout(LONG)
@pytest.mark.parametrize(("action", "made"), [one for one in LAST_CALLS if FULL or LAST_CALLS[one]])
async def test_a_call_is_the_last_of_the_owner(tmp_path: Path, action: Action, made: bool) -> None:
    missed = 0
    for call in itertools.count() if FULL else LAST_CALLS[action, made]:
        killed = await last_call(tmp_path / f"call-{call}", Sweep(action, OWNER, made=made).strikes(call))
        missed = 0 if killed else missed + 1
        if missed == driver.MISSES:
            print(f"each of {call + 1 - missed} calls was the last")
            break
        if FULL and call % PROGRESS == 0:
            print(f"{call} so far", flush=True)
    assert FULL or not missed, "there is no such call any more"


async def last_call(folder: Path, plan: list[dict[str, Any]]) -> bool:
    """Was there such a call?"""
    folder.mkdir()
    faults = Faults(folder, folder / "disks")
    with drive(faults, folder, plan) as driven:
        driven.communicate(timeout=60)
    faults.close()
    assert driven.returncode in (0, -signal.SIGKILL), (folder / "errors").read_text()
    world = driver.made(folder / "disks" / "0")
    await check_guarantees(world, EVERY)
    end_all(world.state_dir)
    return driven.returncode != 0


def report(what: str, found: list[dict[str, Any]]) -> None:
    """How often each kind of call was struck, and how it ended."""
    counts: dict[str, int] = {}
    for one in found:
        end = f"{one['call'] or 'none'} -> {one.get('refused') or one.get('outcome')}, {one['settled']}"
        counts[end] = counts.get(end, 0) + 1
    for end, count in sorted(counts.items()):
        print(f"{what}: {count:4} {end}")
