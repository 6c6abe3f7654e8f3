"""What a run has used, against what the kernel tells of a parent that had no other children."""

from __future__ import annotations

import json
import subprocess
import sys

_PARENT = """
import json, os, resource
from durable_supervisor.process import libc, tree
from durable_supervisor.process.usage import Usage

def burn(size=0):
    held = b"x" * size
    for number in range(300_000):
        number * number

def child(work):
    pid = os.fork()
    if pid == 0:
        work()
        os._exit(0)
    return pid

def leader():
    os.waitpid(child(lambda: burn(40_000_000)), 0)  # one that it reaps itself
    child(burn)  # one that it leaves to the subreaper
    child(lambda: child(burn))  # and one whose parent leaves it, too
    burn()

libc.set_child_subreaper()
pid, usage = child(leader), Usage()
os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
while not tree.reap_others(pid, usage):
    pass
usage.add(os.wait4(pid, 0)[2])
told = resource.getrusage(resource.RUSAGE_CHILDREN)
print(json.dumps([usage.to_dict(), told.ru_utime, told.ru_stime, told.ru_maxrss]))
"""


def test_what_is_added_up_is_what_the_kernel_says_of_all_children() -> None:
    answer = subprocess.run([sys.executable, "-c", _PARENT], capture_output=True, check=True, timeout=120)
    usage, user, system, peak = json.loads(answer.stdout)
    assert abs(usage["user_seconds"] - user) < 0.0001  # each of the parts is cut to microseconds
    assert abs(usage["system_seconds"] - system) < 0.0001
    assert usage["max_rss_kib"] == peak
    assert user > 0
