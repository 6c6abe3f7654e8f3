"""Refuse system calls that would lead around a policy (seccomp(2)); inherited for ever.

A refused call fails with an error that libraries know; nothing is killed.  The filter is
a second wall around an own network namespace, and the only one where there is none.
"""

from __future__ import annotations

import ctypes
import errno
import os
import socket

from ..kernel import prctl
from ..privileges import gain_none
from ..trial import succeeds
from .bpf import ALLOWED, INSTRUCTION_SIZE, Argument, Case, Rule, assemble, encode
from .syscalls import this_machine

_PR_SET_SECCOMP = 22  # prctl(2)
_SECCOMP_MODE_FILTER = 2

_AF_UNIX, _AF_INET, _AF_INET6, _AF_NETLINK = 1, 2, 10, 16  # socket(2)
_SOCK_STREAM, _SOCK_SEQPACKET, _SOCK_TYPE_MASK = 1, 5, 0xF
_NETLINK_ROUTE = 0
_CLONE_NEWUSER = 0x10000000
_NEW_USER_NAMESPACE = Argument(0, _CLONE_NEWUSER, mask=_CLONE_NEWUSER)
# Both type into a terminal as if a person had: a shell outside that shares it would execute that.
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C
_PRIO_OWN, _IOPRIO_OWN = (0, 1), (1, 2)  # process and group, not user: setpriority(2), ioprio_set(2)
# These change a file that was opened to be read: flags such as "immutable", verity, encryption, version
# (linux/fs.h: all of letter 'f' that hand something in, and three more); subvolumes (linux/btrfs.h: letter
# 0x94).  Who may write nothing needs none of them.
_OF_LETTER, _HANDS_IN = 0xFF00, 0x40000000
_FS_LETTER, _BTRFS_LETTER = ord("f") << 8, 0x94 << 8
_FS_IOC_FSSETXATTR, _FS_IOC_SETVERSION, _FS_IOC_SET_ENCRYPTION_POLICY = 0x401C5820, 0x40087602, 0x800C6613

# A pair of datagram sockets can be given another peer by connect(2) or sendto(2), any path in the file
# system: of a pair of the other types each is connected to the other for good.
_PAIRS = Rule(
    errno.EACCES,
    ("socketpair",),
    Case(
        ALLOWED,
        Argument(0, _AF_UNIX),
        Argument(1, _SOCK_STREAM, _SOCK_SEQPACKET, mask=_SOCK_TYPE_MASK),
    ),
)

_SOCKETS = {
    # There is no namespace around it: no socket of any kind.
    "none": [Rule(errno.EACCES, ("socket",)), _PAIRS],
    # Families that end at the namespace, netlink as far as it is needed to list its interfaces.
    # Unix sockets by path do not end there, nor do the host's other families (vsock, hash functions …).
    "own_namespace": [
        Rule(
            errno.EACCES,
            ("socket",),
            Case(ALLOWED, Argument(0, _AF_INET, _AF_INET6)),
            Case(ALLOWED, Argument(0, _AF_NETLINK), Argument(2, _NETLINK_ROUTE)),
        ),
        _PAIRS,
    ],
    # The network is the host's, but what a path leads to is not all files.
    "no_unix": [Rule(ALLOWED, ("socket",), Case(errno.EACCES, Argument(0, _AF_UNIX))), _PAIRS],
}

_REFUSALS = {
    # Makes sockets and connects them, and changes files, with no call that a filter sees.
    "io_uring": [Rule(errno.ENOSYS, ("io_uring_setup", "io_uring_enter", "io_uring_register"))],
    "tracing": [Rule(errno.EPERM, ("ptrace", "process_vm_readv", "process_vm_writev", "pidfd_getfd"))],
    # Who makes a user namespace has every capability in it.  clone3 has its flags in memory, where
    # a filter cannot look: without it, libraries use clone.
    "user_namespaces": [
        Rule(ALLOWED, ("clone", "unshare"), Case(errno.EPERM, _NEW_USER_NAMESPACE)),
        Rule(errno.ENOSYS, ("clone3",)),
        Rule(errno.EPERM, ("setns",)),
    ],
    "metadata": [
        Rule(
            errno.EPERM,
            (
                "chmod", "fchmod", "fchmodat", "fchmodat2",
                "chown", "fchown", "lchown", "fchownat",
                "utime", "utimes", "futimesat", "utimensat",
                "setxattr", "lsetxattr", "fsetxattr", "setxattrat",
                "removexattr", "lremovexattr", "fremovexattr", "removexattrat",
                "file_setattr",
            ),
        ),
    ],
}  # fmt: skip


# Whatever has the same user, the worker too, may be given no processor time at all, which is as good as a
# kill, or so low a priority that it comes too late.  Everybody may do as much to itself, or to its group.
_OTHERS = [
    Rule(
        errno.EPERM,
        ("prlimit64", "sched_setscheduler", "sched_setparam", "sched_setattr"),
        Case(ALLOWED, Argument(0, 0)),
    ),
    Rule(errno.EPERM, ("setpriority",), Case(ALLOWED, Argument(0, *_PRIO_OWN), Argument(1, 0))),
    Rule(errno.EPERM, ("ioprio_set",), Case(ALLOWED, Argument(0, *_IOPRIO_OWN), Argument(1, 0))),
    # Keys are the user's, whoever put them there.  The kernel answers for some with a helper of its own
    # outside, which is root, and asks a name server (request-key(8)).
    Rule(errno.ENOSYS, ("add_key", "request_key", "keyctl")),
]


class _Filter(ctypes.Structure):
    """struct sock_fprog (linux/filter.h)."""

    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def rules(wanted: dict[str, object]) -> list[Rule]:
    """What a plan's ``seccomp`` stands for, each call named once; nothing at all where it wants nothing.

    ``sockets``: ``none``, ``own_namespace``, ``no_unix`` or None; refused where true: ``io_uring``,
    ``tracing``, ``user_namespaces``, ``metadata``.  Raises KeyError for anything else.
    """
    chosen: list[Rule] = []
    for name, value in wanted.items():
        if value:
            chosen += _SOCKETS[str(value)] if name == "sockets" else _REFUSALS[name]
    return [*chosen, _controls(wanted), *_OTHERS] if chosen else []


def _controls(wanted: dict[str, object]) -> Rule:
    """What ioctl(2) is refused: always to type into terminals."""
    refused = [Argument(1, _TIOCSTI, _TIOCLINUX)]
    if wanted.get("metadata"):
        refused += [
            Argument(1, _FS_IOC_FSSETXATTR, _FS_IOC_SETVERSION, _FS_IOC_SET_ENCRYPTION_POLICY),
            Argument(1, _FS_LETTER | _HANDS_IN, mask=_OF_LETTER | _HANDS_IN),
            Argument(1, _BTRFS_LETTER, mask=_OF_LETTER),
        ]
    return Rule(ALLOWED, ("ioctl",), *(Case(errno.EPERM, argument) for argument in refused))


def program(wanted: dict[str, object]) -> bytes:
    """The filter, as an array of struct sock_filter.  Raises OSError: no table for this machine."""
    machine = this_machine()
    if machine is None:
        raise OSError(errno.ENOSYS, f"no table of system calls for {os.uname().machine}")
    return encode(assemble(rules(wanted), machine))


def install(wanted: dict[str, object]) -> None:
    """Put the filter on this thread and whatever comes of it.  It cannot be taken off again.

    Needs no_new_privs (or CAP_SYS_ADMIN).  Raises OSError.
    """
    if not rules(wanted):
        return
    code = program(wanted)
    filter_ = _Filter(len(code) // INSTRUCTION_SIZE, code)
    prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.addressof(filter_))


def probe() -> bool:
    """Does the kernel take a filter, and heed it?"""
    return succeeds(_try_filter)


def _try_filter() -> bool:
    gain_none()
    install({"sockets": "none", **dict.fromkeys(_REFUSALS, True)})
    try:
        socket.socket(socket.AF_INET).close()
    except PermissionError:
        return True
    return False
