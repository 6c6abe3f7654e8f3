"""Make every mount read-only but what may be written.

Landlock knows nothing of modes, owners, times and attributes: whoever owns a file can change those, of
any path.  A read-only mount refuses that as well.  Needs a mount namespace of its own.
"""

from __future__ import annotations

import os
import struct

from ..kernel import call
from ..plan import Refused
from .paths import ALL, WRITE, Open

# The same numbers on every machine (asm-generic/unistd.h).
_OPEN_TREE, _MOVE_MOUNT, _MOUNT_SETATTR = 428, 429, 442
_AT_FDCWD, _AT_EMPTY_PATH, _AT_RECURSIVE = -100, 0x1000, 0x8000
_OPEN_TREE_CLONE = 1
_MOVE_FROM_FD, _MOVE_TO_FD = 0x4, 0x40  # MOVE_MOUNT_F_EMPTY_PATH, MOVE_MOUNT_T_EMPTY_PATH
_READ_ONLY = struct.Struct("=4Q").pack(1, 0, 0, 0)  # struct mount_attr: MOUNT_ATTR_RDONLY is set


def read_only_but(grants: list[Open]) -> None:
    """Everything but the grants that may be written.  The working directory is entered anew.

    Each of those is a mount of its own afterwards: a file can't be renamed from one to another, only
    copied.  Raises OSError where nothing was changed, Refused where it was, and is not as it should be.
    """
    writable = _outermost([grant for grant in grants if grant.access in (WRITE, ALL)])
    here = os.getcwd()
    if any(os.path.samestat(os.fstat(grant.fd), os.stat("/")) for grant in writable):
        _enter_again(here)
        return
    copies = [
        call(_OPEN_TREE, grant.fd, b"", _OPEN_TREE_CLONE | os.O_CLOEXEC | _AT_EMPTY_PATH | _AT_RECURSIVE)
        for grant in writable
    ]
    call(_MOUNT_SETATTR, _AT_FDCWD, b"/", _AT_RECURSIVE, _READ_ONLY, len(_READ_ONLY))
    try:
        for grant, copy in zip(writable, copies, strict=True):
            call(_MOVE_MOUNT, copy, b"", grant.fd, b"", _MOVE_FROM_FD | _MOVE_TO_FD)
            os.close(copy)
        _enter_again(here)
    except OSError as error:
        raise Refused("files", f"a grant cannot be made writable: {error.strerror}") from None


def _outermost(grants: list[Open]) -> list[Open]:
    """Without those beneath another: they are writable with it."""
    paths = [grant.path.rstrip("/") + "/" for grant in grants]
    return [
        grant
        for grant, path in zip(grants, paths, strict=True)
        if not any(path != other and path.startswith(other) for other in paths)
    ]


def _enter_again(here: str) -> None:
    """We stand in the mount beneath, read-only or hidden by now; the path leads to the one above it."""
    try:
        before = os.stat(".")
        os.chdir(here)
        is_same = os.path.samestat(before, os.stat("."))
    except OSError as error:
        raise Refused("files", f"the working directory cannot be entered: {error.strerror}") from None
    if not is_same:
        raise Refused("files", "the working directory was replaced meanwhile")
