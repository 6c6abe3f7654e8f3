"""Deny every access to files that no rule allows (landlock(7)); inherited for ever.

What is handled is cut to what the kernel knows.  A rule belongs to the file itself, not to its
name: renaming, links and mounts lead nowhere else.
"""

from __future__ import annotations

import os
import stat
import struct

from ..kernel import call
from .paths import ALL, DEVICE, EXECUTE, READ, WRITE, Open

# The same numbers on every machine (asm-generic/unistd.h).
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_VERSION, _PATH_BENEATH = 1, 1
_BENEATH = struct.Struct("=Qi")  # struct landlock_path_beneath_attr, packed
_RULESET = struct.Struct("=3Q")  # struct landlock_ruleset_attr: files, network (ABI 4), scopes (ABI 6)

# LANDLOCK_ACCESS_FS_…, linux/landlock.h.
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR, _REMOVE_DIR, _REMOVE_FILE = (1 << bit for bit in range(6))
_MAKE_CHAR, _MAKE_DIR, _MAKE_REG, _MAKE_SOCK, _MAKE_FIFO, _MAKE_BLOCK, _MAKE_SYM = (
    1 << bit for bit in range(6, 13)
)
_REFER, _TRUNCATE, _IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15
MOVE_SINCE = 2  # before, a domain of any kind can move nothing from one directory to another
TRUNCATE_SINCE = 3  # before, what may be read could be cut off too
_FIRST = (1 << 13) - 1
_SINCE = {MOVE_SINCE: _REFER, TRUNCATE_SINCE: _TRUNCATE, 5: _IOCTL_DEV}
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV  # the others are of directories
_ABSTRACT_UNIX_SOCKETS, _SIGNALS = 1, 2  # what may end at the domain
SCOPES_SINCE = 6

_READING = _READ_FILE | _READ_DIR
# Device nodes are never made: that takes a capability, and there is none.
_WRITING = (
    _READING | _WRITE_FILE | _TRUNCATE | _IOCTL_DEV | _REFER | _REMOVE_DIR | _REMOVE_FILE
    | _MAKE_DIR | _MAKE_REG | _MAKE_SOCK | _MAKE_FIFO | _MAKE_SYM
)  # fmt: skip
_RIGHTS = {
    READ: _READING,
    EXECUTE: _READING | _EXECUTE,
    WRITE: _WRITING,
    ALL: _WRITING | _EXECUTE,
    DEVICE: _READ_FILE | _WRITE_FILE | _TRUNCATE | _IOCTL_DEV,
}


def probe() -> int:
    """The kernel's ABI version; 0 where there is no Landlock, or it is switched off."""
    try:
        return call(_CREATE_RULESET, None, 0, _VERSION)
    except OSError:
        return 0


def restrict(allowed: list[Open] | None, *, sockets: bool = False) -> None:
    """From now on these paths and no other; with None all of them, in a domain of its own all the same.

    From within a domain nothing outside can be traced or, where the kernel has scopes, be
    signalled; nor, unless ``sockets``, be reached by an abstract unix socket.  Needs no_new_privs.
    Raises OSError.
    """
    abi = probe()
    handled = _handled(abi) if allowed is not None else _least(abi)
    scopes = _SIGNALS if sockets else _SIGNALS | _ABSTRACT_UNIX_SOCKETS
    ruleset = call(_CREATE_RULESET, *_attributes(handled, scopes, abi), 0)
    try:
        if allowed is not None:
            for path in allowed:
                _allow(ruleset, path.fd, _RIGHTS[path.access] & handled)
        elif handled:
            _allow_everywhere(ruleset, handled)
        call(_RESTRICT_SELF, ruleset, 0)
    finally:
        os.close(ruleset)


def _handled(abi: int) -> int:
    """Every right over files that this kernel knows."""
    handled = _FIRST
    for since, right in _SINCE.items():
        if abi >= since:
            handled |= right
    return handled


def _least(abi: int) -> int:
    """A ruleset must handle something; before there were scopes, a right that is then allowed everywhere.

    Where rules say anything of files, moving one between directories is denied unless allowed.
    """
    if abi >= SCOPES_SINCE:
        return 0
    return _MAKE_BLOCK | (_REFER if abi >= MOVE_SINCE else 0)


def _attributes(handled: int, scopes: int, abi: int) -> tuple[bytes, int]:
    """The struct as far as this kernel knows it, and its size."""
    size = 8 if abi < 4 else 16 if abi < SCOPES_SINCE else 24
    return _RULESET.pack(handled, 0, scopes)[:size], size


def _allow(ruleset: int, fd: int, rights: int) -> None:
    if not stat.S_ISDIR(os.fstat(fd).st_mode):
        rights &= _OF_FILES
    call(_ADD_RULE, ruleset, _PATH_BENEATH, _BENEATH.pack(rights, fd), 0)


def _allow_everywhere(ruleset: int, rights: int) -> None:
    root = os.open("/", os.O_PATH | os.O_CLOEXEC)
    try:
        _allow(ruleset, root, rights)
    finally:
        os.close(root)
