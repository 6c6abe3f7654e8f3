"""Mounts of this process's namespace: which there are (proc_pid_mountinfo(5)), and making them read-only."""

from __future__ import annotations

import ctypes
import os
import re

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mount.argtypes = (
    ctypes.c_char_p,
    ctypes.c_char_p,
    ctypes.c_char_p,
    ctypes.c_ulong,
    ctypes.c_char_p,
)

# mount(2)
MS_RDONLY, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 1, 32, 4096, 16384, 1 << 18
_OPTIONS = {
    "ro": MS_RDONLY,
    "nosuid": 2,
    "nodev": 4,
    "noexec": 8,
    "nosymfollow": 256,
    "noatime": 1024,
    "nodiratime": 2048,
    "relatime": 1 << 21,
}
_ESCAPED = re.compile(r"\\([0-7]{3})")  # space, tab, newline and backslash


class Mount:
    """``kind`` is the type of its file system, ``flags`` what mount(2) would take."""

    __slots__ = ("flags", "kind", "path")

    def __init__(self, path: str, kind: str, flags: int) -> None:
        self.path = path
        self.kind = kind
        self.flags = flags


def mounts() -> list[Mount]:
    """All of them, in the order in which they were mounted.  Raises OSError."""
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        return [parse(line) for line in file]


def parse(line: str) -> Mount:
    """One line: ``36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw``."""
    before, _, after = line.partition(" - ")
    fields = before.split(" ")
    path = _ESCAPED.sub(lambda escaped: chr(int(escaped[1], 8)), fields[4])
    flags = sum(_OPTIONS.get(option, 0) for option in fields[5].split(","))
    return Mount(path, after.split(" ")[0], flags)


def detach_from_host() -> None:
    """What is mounted here stays here, and what is mounted or unmounted outside stays there.  Raises OSError.

    Whatever arrived from outside later could be written, also where all else is read-only.
    """
    _mount(None, "/", MS_REC | MS_PRIVATE)


def bind_to_itself(path: str) -> None:
    """Make it a mount, with those beneath, so that it can have flags of its own.  Raises OSError."""
    _mount(path, path, MS_BIND | MS_REC)


def make_read_only(mount: Mount) -> None:
    """For this namespace alone.  Raises OSError.

    The other flags are given again: a user namespace must not take off what it found.
    """
    _mount(None, mount.path, MS_REMOUNT | MS_BIND | MS_RDONLY | mount.flags)


def _mount(source: str | None, path: str, flags: int) -> None:
    origin = None if source is None else os.fsencode(source)
    if _libc.mount(origin, os.fsencode(path), None, flags, None) != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error), path)
