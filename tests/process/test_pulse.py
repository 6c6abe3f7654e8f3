"""Of one process, and never of another that has its pid later."""

from __future__ import annotations

import os
import signal
import subprocess

import pytest

from durable_supervisor.process.pulse import Pulse
from tests.support import eventually


def test_it_follows_one_process_to_its_end() -> None:
    child = subprocess.Popen(["sleep", "3232"])
    try:
        pulse = Pulse(child.pid)
        assert not pulse.stands_still()
        os.kill(child.pid, signal.SIGSTOP)
        eventually(pulse.stands_still)
        os.kill(child.pid, signal.SIGCONT)
        eventually(lambda: not pulse.stands_still())
        os.kill(child.pid, signal.SIGKILL)
        eventually(pulse.stands_still)  # a zombie
    finally:
        child.kill()
        child.wait()
    assert pulse.stands_still()
    pulse.close()
    pulse.close()
    with pytest.raises(OSError):
        Pulse(child.pid)
