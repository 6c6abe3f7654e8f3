"""Files of /proc about ourselves that stay open tell the same as those that are opened anew."""

from __future__ import annotations

import json
import subprocess
import sys

from durable_supervisor.process import own

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

_COUNTED = """
import json, os
from durable_supervisor.process import own

def listed():
    return len(os.listdir("/proc/self/fd")) - 1  # one was of the listing itself

pairs = [(own.open_descriptors(), listed())]
fd = os.open("/", os.O_RDONLY)
pairs.append((own.open_descriptors(), listed()))
os.close(fd)
pairs.append((own.open_descriptors(), listed()))
print(json.dumps(pairs))
"""


def test_what_stays_open_tells_how_it_is_now() -> None:
    answer = subprocess.run([sys.executable, "-c", _PROCESS], capture_output=True, check=True, timeout=120)
    assert json.loads(answer.stdout) == [True, [], True, [], False, 6]


def test_open_descriptors_are_counted_or_it_is_said_that_nobody_counts() -> None:
    answer = subprocess.run([sys.executable, "-c", _COUNTED], capture_output=True, check=True, timeout=120)
    pairs = json.loads(answer.stdout)
    assert all(counted == listed for counted, listed in pairs) or not any(counted for counted, _ in pairs)
    assert [listed - pairs[0][1] for _, listed in pairs] == [0, 1, 0]


def test_what_is_read_into_some_room_is_as_much_as_it_holds() -> None:
    whole = own.read("self/environ")
    room, little = bytearray(len(whole) + 100), bytearray(len(whole) // 2)
    own.read_into("self/environ", room)
    own.read_into("self/environ", little)
    assert room == whole + bytes(100)
    assert little == whole[: len(little)]
