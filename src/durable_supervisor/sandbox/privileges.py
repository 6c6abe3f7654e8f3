"""No privileges, now or later: no capability in any set, and none to be had by executing anything.

With no_new_privs nothing that is executed gains a capability, root's own programs included.  The
bounding set is emptied and root made an ordinary number all the same, where that is ours to
do (CAP_SETPCAP, which an ordinary user lacks: capabilities(7)): then two walls would have to fall.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct

from .kernel import call, prctl
from .trial import succeeds

_PR_CAPBSET_READ, _PR_CAPBSET_DROP = 23, 24  # prctl(2)
_PR_SET_SECUREBITS = 28
_PR_SET_NO_NEW_PRIVS, _PR_GET_NO_NEW_PRIVS = 38, 39
_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL = 47, 4
# Root is an ordinary number, a change of ids gives nothing, nothing is kept or raised; each of it locked.
_SECUREBITS = 0xEF
_VERSION_3 = 0x20080522  # linux/capability.h
_HEADER = struct.Struct("=Ii")
_SETS = struct.Struct("=6I")  # effective, permitted, inheritable: their low words, then the high ones
_CAP_SETPCAP = 1 << 8
_LAST_POSSIBLE = 63
_NUMBERS = {"x86_64": (125, 126), "aarch64": (90, 91)}  # capget, capset


def drop() -> None:
    """Give up everything, for good.  Raises OSError, also when something is left afterwards."""
    capget, capset = _numbers()
    if _capabilities(capget)[0] & _CAP_SETPCAP:
        prctl(_PR_SET_SECUREBITS, _SECUREBITS)
        for capability in _bounding():
            prctl(_PR_CAPBSET_DROP, capability)
    prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL)
    call(capset, _HEADER.pack(_VERSION_3, 0), _SETS.pack(*[0] * 6))
    gain_none()
    if any(_capabilities(capget)) or prctl(_PR_GET_NO_NEW_PRIVS) != 1:
        raise OSError(errno.EPERM, "some are left")


def gain_none() -> None:
    """Whatever is executed gets no more than there is now (no_new_privs).  Raises OSError."""
    prctl(_PR_SET_NO_NEW_PRIVS, 1)


def probe() -> bool:
    """Can they be given up?"""
    return succeeds(_try_drop)


def _try_drop() -> bool:
    drop()
    return True


def _bounding() -> list[int]:
    """The capabilities that the kernel has and the bounding set too."""
    found = []
    for capability in range(_LAST_POSSIBLE + 1):
        try:
            if prctl(_PR_CAPBSET_READ, capability):
                found.append(capability)
        except OSError:
            break  # beyond the last one that this kernel knows
    return found


def _capabilities(capget: int) -> tuple[int, ...]:
    answer = ctypes.create_string_buffer(_SETS.size)
    call(capget, _HEADER.pack(_VERSION_3, 0), answer)
    return _SETS.unpack(answer.raw)


def _numbers() -> tuple[int, int]:
    machine = os.uname().machine
    if machine not in _NUMBERS:
        raise OSError(errno.ENOSYS, f"no table of system calls for {machine}")
    return _NUMBERS[machine]
