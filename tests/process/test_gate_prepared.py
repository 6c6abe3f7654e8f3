"""Where children cannot share memory, programs are started all the same."""

from __future__ import annotations

import os
import textwrap

import pytest

from durable_supervisor.process.paused.code import MACHINES
from tests.process.gates import worker

if os.uname().machine not in MACHINES:
    pytest.skip("no code for this machine", allow_module_level=True)

# ``refuse``: a filter that answers a system call with an error, always or if its first argument has a bit.
FILTER = """
from durable_supervisor.process.paused.code import MACHINES

def number(name, x86_64=0, aarch64=0):
    machine = os.uname().machine
    return {"x86_64": x86_64, "aarch64": aarch64}[machine] or MACHINES[machine].numbers[name]

def refuse(number, bit=0, error=errno.ENOSYS):
    load, equal, has, answer = 0x20, 0x15, 0x45, 0x06
    code = [(load, 0, 0, 0), (equal, 0, 3 if bit else 1, number)]
    if bit:
        code += [(load, 0, 0, 16), (has, 0, 1, bit)]
    code += [(answer, 0, 0, 0x50000 | error), (answer, 0, 0, 0x7FFF0000)]
    rules = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *one) for one in code))
    program = ctypes.create_string_buffer(struct.pack("@HP", len(code), ctypes.addressof(rules)))
    prctl = ctypes.CDLL(None).prctl
    assert prctl(38, *map(ctypes.c_ulong, (1, 0, 0, 0))) == 0
    assert prctl(22, ctypes.c_ulong(2), program) == 0
"""
CHECK = """
found = gate.cloner()
print(found if isinstance(found, str) else "shared", flush=True)
paused = make("/bin/echo", "executed")
paused.release()
assert ended(paused.pid) == 0
"""


def found(script: str) -> str:
    """How children come to be after this script: ``shared``, or why they are copies."""
    said, executed = worker(FILTER + textwrap.dedent(script) + CHECK, "unknown").splitlines()
    assert executed == "executed"
    return said


def test_memory_that_was_writable_need_not_become_code() -> None:
    """systemd's MemoryDenyWriteExecute refuses that (PR_SET_MDWE, since Linux 6.3)."""
    script = """
        if ctypes.CDLL(None).prctl(65, *map(ctypes.c_ulong, (1, 0, 0, 0))):
            gate._cloner = "too old a kernel"
    """
    if (said := found(script)) == "too old a kernel":
        pytest.skip(said)
    assert said == "shared"


@pytest.mark.parametrize(
    "call", ["number('close_range')", "number('clone', 56, 220), 0x100", "number('memfd_create', 319, 279)"]
)
def test_what_the_kernel_refuses_is_found_out_beforehand(call: str) -> None:
    assert found(f"refuse({call})") == "Function not implemented"


def test_a_lack_of_descriptors_is_no_answer() -> None:
    script = """
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
        assert gate.cloner() == "just now: Too many open files"
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    """
    assert found(script) == "shared"


@pytest.mark.parametrize("point", ["program.paused", "program.released"])
def test_a_point_of_the_child_is_met_by_a_copy(point: str) -> None:
    script = """
        from durable_supervisor.process import failpoints
        failpoints._armed[arguments[0]] = (signal.SIGKILL, 1)
        assert isinstance(gate.cloner(), str)
        paused = make("/bin/true")
        paused.release()
        print(ended(paused.pid))
    """
    assert worker(script, "clone", point) == "-9\n"


def test_the_child_shares_its_parents_memory_and_nothing_else() -> None:
    """kcmp(2), where the kernel has it."""
    script = """
        kcmp = {"x86_64": 312, "aarch64": 272}[os.uname().machine]
        kinds = {"memory": 1, "descriptors": 2, "directory": 3, "handlers": 4}

        def same(pid, kind):
            return ctypes.CDLL(None).syscall(kcmp, os.getpid(), pid, kind, 0, 0) == 0

        paused = make("/bin/true")
        print(same(os.getpid(), 1), *(name for name, kind in kinds.items() if same(paused.pid, kind)))
        paused.discard()
    """
    works, *shared = worker(script, "clone").split()
    if works != "True":
        pytest.skip("no kcmp")
    assert shared == ["memory"]
