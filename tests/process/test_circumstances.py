"""What a program can change of its worker, the worker's next run does not inherit."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from durable_supervisor import Command, Supervisor
from durable_supervisor.process.circumstances import circumstances
from tests.process.reuse import is_free
from tests.process.test_zygote import alive, worker_pid
from tests.support import PATIENCE, eventually_async

KEYS = """
import ctypes, os
add_key, request_key, keyctl = {"x86_64": (248, 249, 250), "aarch64": (217, 218, 219)}[os.uname().machine]
call, name = ctypes.CDLL(None).syscall, b"of-a-program"
"""
LEAVE_A_KEY = f"""{KEYS}
print(min(
    call(keyctl, 1, None),  # KEYCTL_JOIN_SESSION_KEYRING
    call(add_key, b"user", name, b"a secret", 8, -3),  # KEY_SPEC_SESSION_KEYRING
    call(keyctl, 18),  # KEYCTL_SESSION_TO_PARENT
) >= 0)
"""
FIND_IT = f"{KEYS}\nprint(call(request_key, b'user', name, None, 0) > 0)"


async def said(sup: Supervisor, script: str) -> bool:
    """As of when its worker is ready for another run, or gone."""
    run = await sup.start(Command(argv=[sys.executable, "-I", "-S", "-c", script]))
    worker = worker_pid(await sup.wait(run.id, timeout=PATIENCE))
    await eventually_async(lambda: is_free(worker) or not alive(worker))
    page = await sup.events(run.id)
    return "".join(event.text for event in page.events if event.kind == "output") == "True\n"


@pytest.mark.skipif(os.uname().machine not in ("x86_64", "aarch64"), reason="other numbers of calls")
async def test_keys_of_one_run_are_not_found_by_the_next(state_dir: Path) -> None:
    """The kernel lets a child give its session keyring to its parent (keyctl(2))."""
    async with Supervisor.open(state_dir, zygote=True) as sup:
        assert not await said(sup, FIND_IT)
        if not await said(sup, LEAVE_A_KEY):
            pytest.skip("no keys to be had here")
        assert not await said(sup, FIND_IT)


@pytest.mark.skipif(os.geteuid() != 0, reason="a realtime priority needs root")
def test_a_realtime_priority_is_one_of_them() -> None:
    """Not its policy alone."""
    before = circumstances()
    try:
        for priority in ("1", "2"):
            set_it = ["chrt", "--fifo", "--pid", priority, str(os.getpid())]
            if subprocess.run(set_it, check=False, capture_output=True).returncode:
                pytest.skip("no realtime priorities here")
            assert circumstances() != before
            before = circumstances()
    finally:  # or everything that later tests start would have the processors before all others
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
