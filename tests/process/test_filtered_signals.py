"""Where a filter of system calls takes pidfds only half, a stop is a stop all the same."""

from __future__ import annotations

import pytest

from tests.process.gates import worker
from tests.process.test_gate_prepared import FILTER

SIGNALS = """
import subprocess
from durable_supervisor.process.identity import read_identity, read_stat
from durable_supervisor.process.signals import signal_process, signal_ticks

def one():
    return subprocess.Popen(["sleep", "3131"])

refuse(424, error=errno.{error})  # pidfd_send_signal, on every machine
first, second, third = one(), one(), one()
ticks = read_stat(first.pid).start_ticks
print(signal_ticks(first.pid, ticks + 1, signal.SIGKILL), signal_ticks(first.pid, ticks, signal.SIGKILL))
identity = read_identity(second.pid)
print(signal_process(identity, signal.SIGKILL))
third.kill()
print(first.wait(), second.wait(), third.wait())
print(signal_process(identity, signal.SIGKILL))
"""


@pytest.mark.parametrize("error", ["EPERM", "ENOSYS"])
def test_who_is_proven_is_signalled_though_a_pidfd_is_not_to_be_used(error: str) -> None:
    said = worker(FILTER + SIGNALS.format(error=error), "unknown")
    assert said.split() == ["False", "True", "True", "-9", "-9", "-9", "False"]


def test_without_a_descriptor_to_find_that_out_nobody_is_signalled_by_a_bare_pid() -> None:
    script = """
    from durable_supervisor.process import signals
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    print(signals._may_not_send())
    """
    assert worker(script, "unknown").split() == ["False"]
