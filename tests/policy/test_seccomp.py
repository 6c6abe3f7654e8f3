"""The filter on system calls: what it answers, call by call, on each machine that there is a table for."""

from __future__ import annotations

import errno
import re
import socket
from pathlib import Path

import pytest

from durable_supervisor.sandbox.calls import seccomp
from durable_supervisor.sandbox.calls.bpf import Instruction, assemble, encode
from durable_supervisor.sandbox.calls.syscalls import MACHINES, NEWEST, Machine, this_machine
from tests.policy.filter_machine import answer

STRICT: dict[str, object] = {
    "sockets": "own_namespace",
    "io_uring": True,
    "tracing": True,
    "user_namespaces": True,
    "metadata": True,
}
NONE = {**STRICT, "sockets": "none"}
NO_UNIX = {**STRICT, "sockets": "no_unix"}
ROUTE, GENERIC = 0, 16
PAIR_FLAGS = int(socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
NEW_USER, NEW_NET, THREAD = 0x10000000, 0x40000000, 0x3D0F00
TYPE_INTO, LINUX_CONSOLE, WINDOW_SIZE = 0x5412, 0x541C, 0x5413
GARBAGE = 0xDEAD << 32  # above what the kernel looks at

ANSWERS = [
    # the plan's part, call, arguments, errno
    (STRICT, "socket", (socket.AF_INET, socket.SOCK_STREAM, 0), 0),
    (STRICT, "socket", (socket.AF_INET6, socket.SOCK_DGRAM, 0), 0),
    (STRICT, "socket", (socket.AF_NETLINK, socket.SOCK_RAW, ROUTE), 0),
    (STRICT, "socket", (socket.AF_NETLINK, socket.SOCK_RAW, GENERIC), errno.EACCES),
    (STRICT, "socket", (socket.AF_UNIX, socket.SOCK_STREAM, 0), errno.EACCES),
    (STRICT, "socket", (GARBAGE + socket.AF_UNIX, socket.SOCK_STREAM, 0), errno.EACCES),
    (STRICT, "socket", (GARBAGE + socket.AF_INET, socket.SOCK_STREAM, 0), 0),
    (STRICT, "socket", (socket.AF_PACKET, socket.SOCK_RAW, 0), errno.EACCES),
    (STRICT, "socket", (0, socket.SOCK_STREAM, 0), errno.EACCES),
    (STRICT, "socket", (40, socket.SOCK_STREAM, 0), errno.EACCES),  # AF_VSOCK
    (STRICT, "socketpair", (socket.AF_UNIX, socket.SOCK_STREAM | PAIR_FLAGS, 0), 0),
    (STRICT, "socketpair", (socket.AF_UNIX, socket.SOCK_SEQPACKET, 0), 0),
    (STRICT, "socketpair", (socket.AF_UNIX, socket.SOCK_DGRAM | PAIR_FLAGS, 0), errno.EACCES),
    (STRICT, "socketpair", (socket.AF_UNIX, socket.SOCK_RAW, 0), errno.EACCES),
    (STRICT, "socketpair", (30, socket.SOCK_STREAM, 0), errno.EACCES),  # AF_TIPC
    (STRICT, "io_uring_setup", (1,), errno.ENOSYS),
    (STRICT, "io_uring_enter", (), errno.ENOSYS),
    (STRICT, "io_uring_register", (), errno.ENOSYS),
    (STRICT, "request_key", (), errno.ENOSYS),
    (STRICT, "clone", (THREAD,), 0),
    (STRICT, "clone", (17,), 0),
    (STRICT, "clone", (NEW_USER | 17,), errno.EPERM),
    (STRICT, "clone", (GARBAGE | NEW_USER | NEW_NET,), errno.EPERM),
    (STRICT, "clone3", (), errno.ENOSYS),
    (STRICT, "unshare", (NEW_USER,), errno.EPERM),
    (STRICT, "unshare", (NEW_NET,), 0),  # is refused by the kernel, for want of capabilities
    (STRICT, "setns", (), errno.EPERM),
    (STRICT, "ptrace", (), errno.EPERM),
    (STRICT, "process_vm_writev", (), errno.EPERM),
    (STRICT, "pidfd_getfd", (), errno.EPERM),
    (STRICT, "prlimit64", (0, 7), 0),
    (STRICT, "prlimit64", (1234, 7), errno.EPERM),
    (STRICT, "sched_setattr", (1234,), errno.EPERM),
    (STRICT, "setpriority", (0, 0, 19), 0),
    (STRICT, "setpriority", (0, 1234, 19), errno.EPERM),
    (STRICT, "setpriority", (2, 0, 19), errno.EPERM),  # PRIO_USER: everybody of this user
    (STRICT, "ioprio_set", (1, 0), 0),
    (STRICT, "ioprio_set", (3, 0), errno.EPERM),
    (STRICT, "ioctl", (0, WINDOW_SIZE), 0),
    (STRICT, "ioctl", (0, TYPE_INTO), errno.EPERM),
    (STRICT, "ioctl", (0, GARBAGE | TYPE_INTO), errno.EPERM),
    (STRICT, "ioctl", (0, LINUX_CONSOLE), errno.EPERM),
    (STRICT, "ioctl", (0, 0x40086602), errno.EPERM),  # FS_IOC_SETFLAGS
    (STRICT, "ioctl", (0, 0x40806685), errno.EPERM),  # FS_IOC_ENABLE_VERITY: immutable for ever
    (STRICT, "ioctl", (0, 0x50009418), errno.EPERM),  # BTRFS_IOC_SUBVOL_CREATE_V2
    (STRICT, "ioctl", (0, 0x80086601), 0),  # FS_IOC_GETFLAGS
    (STRICT, "fchmodat2", (), errno.EPERM),
    (STRICT, "fsetxattr", (), errno.EPERM),
    (NONE, "socket", (socket.AF_INET, socket.SOCK_STREAM, 0), errno.EACCES),
    (NONE, "socket", (socket.AF_NETLINK, socket.SOCK_RAW, ROUTE), errno.EACCES),
    (NONE, "socketpair", (socket.AF_UNIX, socket.SOCK_STREAM, 0), 0),
    (NONE, "socketpair", (socket.AF_UNIX, socket.SOCK_DGRAM, 0), errno.EACCES),
    (NO_UNIX, "socket", (socket.AF_INET, socket.SOCK_STREAM, 0), 0),
    (NO_UNIX, "socket", (socket.AF_UNIX, socket.SOCK_DGRAM, 0), errno.EACCES),
    (NO_UNIX, "socketpair", (socket.AF_UNIX, socket.SOCK_DGRAM, 0), errno.EACCES),
    ({"user_namespaces": True}, "socket", (socket.AF_UNIX, socket.SOCK_STREAM, 0), 0),
    ({"user_namespaces": True}, "ioctl", (0, TYPE_INTO), errno.EPERM),
    ({"user_namespaces": True}, "ioctl", (0, 0x40086602), 0),
    ({"user_namespaces": True}, "keyctl", (), errno.ENOSYS),
    ({"user_namespaces": True}, "fchmod", (), 0),
    ({"user_namespaces": True}, "ptrace", (), 0),
]


def code_of(wanted: dict[str, object], machine: Machine) -> list[Instruction]:
    return assemble(seccomp.rules(wanted), machine)


@pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES)
@pytest.mark.parametrize(("wanted", "name", "arguments", "expected"), ANSWERS)
def test_a_call_gets_its_answer(
    machine: Machine, wanted: dict[str, object], name: str, arguments: tuple[int, ...], expected: int
) -> None:
    (number,) = machine.calls((name,))
    found = answer(code_of(wanted, machine), machine.audit_arch, number, *map(int, arguments))
    assert errno.errorcode.get(found) == errno.errorcode.get(expected)


@pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES)
def test_what_no_rule_names_is_allowed(machine: Machine) -> None:
    code = code_of(STRICT, machine)
    named = {number for number in machine.numbers.values() if number is not None}
    for number in set(range(NEWEST + 1)) - named:
        assert answer(code, machine.audit_arch, number, *[0xFFFFFFFFFFFFFFFF] * 6) == 0


@pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES)
@pytest.mark.parametrize("wanted", [STRICT, NONE, NO_UNIX, {"user_namespaces": True}])
def test_there_are_no_calls_of_other_machines_and_none_newer_than_the_table(
    machine: Machine, wanted: dict[str, object]
) -> None:
    code = code_of(wanted, machine)
    i386, arm = 0x40000003, 0x40000028
    others = {one.audit_arch for one in MACHINES.values()} - {machine.audit_arch}
    for architecture in {i386, arm, *others, 0}:
        for number in (0, 1, 102, 359, 0xFFFFFFFF):
            assert answer(code, architecture, number) == errno.ENOSYS
    for number in (NEWEST + 1, 512, 0x40000000, 0x40000000 + 41, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF):
        assert answer(code, machine.audit_arch, number) == errno.ENOSYS


@pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES)
@pytest.mark.parametrize("wanted", [STRICT, NONE, NO_UNIX])
def test_a_filter_is_one_that_the_kernel_takes(machine: Machine, wanted: dict[str, object]) -> None:
    rules = seccomp.rules(wanted)
    named = [name for rule in rules for name in rule.names]
    assert len(named) == len(set(named))  # of two rules for a call the second would never be reached
    code = assemble(rules, machine)
    assert len(code) <= 4096  # BPF_MAXINSNS
    assert len(encode(code)) == 8 * len(code)
    for place, (_, if_true, if_false, _) in enumerate(code[:-1]):
        assert place + 1 + max(if_true, if_false) < len(code)


def test_nothing_wanted_is_no_filter() -> None:
    assert seccomp.rules({}) == []
    assert seccomp.rules(dict.fromkeys(STRICT, None)) == []
    with pytest.raises(KeyError):
        seccomp.rules({"sockets": "some"})
    with pytest.raises(KeyError):
        seccomp.rules({"forks": True})


@pytest.mark.parametrize(
    ("machine", "header"),
    [("x86_64", "x86_64-linux-gnu/asm/unistd_64.h"), ("aarch64", "asm-generic/unistd.h")],
)
def test_numbers_are_those_of_the_kernels_headers(machine: str, header: str) -> None:
    path = Path("/usr/include") / header
    if not path.exists():
        pytest.skip(f"no {header} here to compare with")
    told = dict(re.findall(r"^#define __NR(?:3264)?_(\w+)\s+(\d+)$", path.read_text(), re.MULTILINE))
    told.update(re.findall(r"^#define __NR_(\w+)\s+(\d+)$", path.read_text(), re.MULTILINE))
    compared = [name for name in MACHINES[machine].numbers if name in told]
    assert {name: int(told[name]) for name in compared} == {
        name: MACHINES[machine].numbers[name] for name in compared
    }
    assert len(compared) > 25


@pytest.mark.skipif(this_machine() is None, reason="no table for this machine")
def test_this_kernel_takes_and_heeds_it() -> None:
    assert seccomp.probe()
