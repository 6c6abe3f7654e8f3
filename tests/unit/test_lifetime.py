"""Whose end is a run's: proven by its identity, and told once."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator

import pytest

from durable_supervisor.model.identity import ProcessIdentity
from durable_supervisor.process.identity import read_identity, self_identity
from durable_supervisor.process.pidfd import identify
from durable_supervisor.process.program import StartFailure
from durable_supervisor.worker.lifetime import HostGone, HostWatch
from durable_supervisor.worker.poller import Poller


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "600"])
    yield process
    process.kill()
    process.wait()


def changed(**fields: object) -> ProcessIdentity:
    """This process, but for these fields."""
    return ProcessIdentity.from_dict(self_identity().to_dict() | fields)


def test_the_end_is_told_once(child: subprocess.Popen[bytes]) -> None:
    host = read_identity(child.pid)
    assert host is not None
    poller, told = Poller(), []
    watch = HostWatch(host, poller)
    watch.watch(lambda: told.append("first"))
    watch.watch(lambda: told.append("second"))
    watch.check()
    child.kill()
    poller.turn()
    assert told == ["second"]
    with pytest.raises(HostGone):
        watch.check()
    watch.watch(lambda: told.append("late"))
    assert told == ["second", "late"]


def test_it_is_told_again_where_nobody_could_hear_it(child: subprocess.Popen[bytes]) -> None:
    """For want of a descriptor, say."""
    host = read_identity(child.pid)
    assert host is not None
    poller = Poller()
    tries: list[int] = []

    def on_gone() -> None:
        tries.append(len(tries))
        if len(tries) < 3:
            raise OSError("not now")

    HostWatch(host, poller).watch(on_gone)
    child.kill()
    for _ in range(2):
        with pytest.raises(OSError, match="not now"):
            poller.turn()
    poller.turn()
    assert len(tries) == 3
    assert not poller.armed("host")


@pytest.mark.parametrize(
    "host", [changed(start_ticks=self_identity().start_ticks - 1), changed(boot_id="another")]
)
def test_another_process_under_its_pid_is_not_it(host: ProcessIdentity) -> None:
    watch, told = HostWatch(host, Poller()), []
    with pytest.raises(HostGone):
        watch.check()
    watch.watch(lambda: told.append("gone"))
    assert told == ["gone"]


def test_what_cannot_be_proven_is_not_watched() -> None:
    watch, told = HostWatch(changed(pid_ns="pid:[1]"), Poller()), []
    with pytest.raises(StartFailure) as failure:
        watch.check()
    assert not isinstance(failure.value, HostGone)
    assert failure.value.step == "host"
    watch.watch(lambda: told.append("gone"))
    assert told == []


def test_a_zombie_is_nobody(child: subprocess.Popen[bytes]) -> None:
    host, pidfd = read_identity(child.pid), os.pidfd_open(child.pid)
    try:
        assert identify(pidfd, child.pid) == host
        os.kill(child.pid, signal.SIGKILL)
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert identify(pidfd, child.pid) is None
    finally:
        os.close(pidfd)
    assert host is not None
    with pytest.raises(HostGone):
        HostWatch(host, Poller()).check()
