"""Files of /proc about ourselves that stay open tell the same as those that are opened anew."""

from __future__ import annotations

import json
import subprocess
import sys

_PROCESS = """
import json, os
from durable_supervisor.process import own, tree
from durable_supervisor.process.circumstances import FILES, circumstances

def child():
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    return pid

me = os.getpid()
listed = tree.children_file(me, me)
before, alone = circumstances(), tree.children_of(me)
own.keep_open((*FILES, listed, "self/no-such-file"))
same = circumstances() == before
pids = [child() for _ in range(1500)]  # more than one read brings
kept, anew = tree.children_of(me), [int(pid) for pid in open(f"/proc/{listed}").read().split()]
for pid in pids:
    os.waitpid(pid, 0)
with open("/proc/self/coredump_filter", "w") as file:
    file.write("1")
print(json.dumps([same, alone, sorted(kept) == sorted(anew) == sorted(pids), tree.children_of(me),
                  circumstances() == before, len(own.kept())]))
"""


def test_what_stays_open_tells_how_it_is_now() -> None:
    answer = subprocess.run([sys.executable, "-c", _PROCESS], capture_output=True, check=True, timeout=120)
    assert json.loads(answer.stdout) == [True, [], True, [], False, 6]
