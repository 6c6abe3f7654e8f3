"""Numbers of the system calls that a filter names, by machine (the kernel's ``unistd.h``)."""

from __future__ import annotations

import os
import struct

# Above it are calls that this table knows nothing of, and x32's: its numbers have bit 30 set.
NEWEST = 469  # file_setattr, Linux 6.17; the same on every machine from 424 on

# name: x86_64, aarch64 (None: a call it never had)
_NUMBERS: dict[str, tuple[int, int | None]] = {
    "add_key": (248, 217),
    "chmod": (90, None),
    "chown": (92, None),
    "clone": (56, 220),
    "clone3": (435, 435),
    "fchmod": (91, 52),
    "fchmodat": (268, 53),
    "fchmodat2": (452, 452),
    "fchown": (93, 55),
    "fchownat": (260, 54),
    "file_setattr": (469, 469),
    "fremovexattr": (199, 16),
    "fsetxattr": (190, 7),
    "futimesat": (261, None),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "io_uring_setup": (425, 425),
    "ioctl": (16, 29),
    "ioprio_set": (251, 30),
    "keyctl": (250, 219),
    "lchown": (94, None),
    "lremovexattr": (198, 15),
    "lsetxattr": (189, 6),
    "pidfd_getfd": (438, 438),
    "prlimit64": (302, 261),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "ptrace": (101, 117),
    "removexattr": (197, 14),
    "removexattrat": (466, 466),
    "request_key": (249, 218),
    "sched_setattr": (314, 274),
    "sched_setparam": (142, 118),
    "sched_setscheduler": (144, 119),
    "setns": (308, 268),
    "setpriority": (141, 140),
    "setxattr": (188, 5),
    "setxattrat": (463, 463),
    "socket": (41, 198),
    "socketpair": (53, 199),
    "unshare": (272, 97),
    "utime": (132, None),
    "utimensat": (280, 88),
    "utimes": (235, None),
}


class Machine:
    """One architecture: ``audit_arch`` is its name in a filter (``AUDIT_ARCH_…``, linux/audit.h)."""

    __slots__ = ("audit_arch", "numbers")

    def __init__(self, audit_arch: int, column: int) -> None:
        self.audit_arch = audit_arch
        self.numbers = {name: row[column] for name, row in _NUMBERS.items()}

    def calls(self, names: tuple[str, ...]) -> list[int]:
        """Their numbers; those it never had left out."""
        numbers = [self.numbers[name] for name in names]
        return [number for number in numbers if number is not None]


MACHINES = {"x86_64": Machine(0xC000003E, 0), "aarch64": Machine(0xC00000B7, 1)}


def this_machine() -> Machine | None:
    """None: one that there is no table for."""
    if struct.calcsize("P") != 8:
        return None  # a 32-bit interpreter makes the calls of another machine than uname(2) names
    return MACHINES.get(os.uname().machine)
