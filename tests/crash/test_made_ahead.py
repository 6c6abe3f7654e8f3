"""Kill -9 around a start that takes the log made ahead of it: see `runlog.ready`."""

from __future__ import annotations

import os

import pytest

from durable_supervisor.upkeep.verify import verify
from tests.crash.harness import logs
from tests.crash.test_matrix import EXIT, RETRIED
from tests.crash.world import World, check_guarantees
from tests.support import eventually

# Others are of a log made in its turn, or of a worker that is new; the first run's is there for the second.
ELSEWHERE = {"start.log_unlocked", "start.spawned", "start.zygote_asked"}
POINTS = [name for name in RETRIED if name not in ELSEWHERE]
UNNAMED = {"start.chosen"}


def next_log_of(pid: int) -> int:
    """The inode of its next run's log; 0 while there is none."""
    folder = f"/proc/{pid}/fd"
    for fd in os.listdir(folder):
        try:
            found = os.stat(f"{folder}/{fd}")
            if found.st_nlink == 0 and "/runs/#" in os.readlink(f"{folder}/{fd}"):
                return found.st_ino
        except FileNotFoundError:
            continue
    return 0


@pytest.mark.parametrize("name", POINTS)
async def test_a_host_is_killed_that_has_one(world: World, name: str) -> None:
    EXIT.request(world)
    with world.host(f"{name}=kill@2", "zygote") as host:
        host.opened()
        host.ask("wait", run=host.start(["true"], request_id="before"))
        # It can be seen before it can be used.
        eventually(lambda: host.ask("next_log_there"), message="the next run's log is never made")
        made = next_log_of(host.pid)
        host.tell("start", argv=world.argv, request_id=world.request_id)
        host.died()
    assert (made in {log.stat().st_ino for log in logs(world.state_dir)}) is (name not in UNNAMED)
    await check_guarantees(world, RETRIED[name][1])
    assert (await verify(world.state_dir)).findings == []
