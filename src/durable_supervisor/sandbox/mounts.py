"""Mounts of this process's namespace: which there are (proc_pid_mountinfo(5)), and making them read-only."""

from __future__ import annotations

import re
from collections.abc import Sequence

from . import kernel

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
    """``kind`` is the type of its file system, ``flags`` what mount(2) would take.

    ``root`` is what of the file system it shows, ``options`` are those of the file system itself.
    """

    __slots__ = ("flags", "kind", "options", "path", "root")

    def __init__(
        self, path: str, kind: str, flags: int, *, root: str = "/", options: Sequence[str] = ()
    ) -> None:
        self.path = path
        self.kind = kind
        self.flags = flags
        self.root = root
        self.options = options


def mounts() -> list[Mount]:
    """All of them, in the order in which they were mounted.  Raises OSError."""
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        return [parse(line) for line in file]


def parse(line: str) -> Mount:
    """One line: ``36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw``."""
    before, _, after = line.partition(" - ")
    fields = before.split(" ")
    flags = sum(_OPTIONS.get(option, 0) for option in fields[5].split(","))
    root, path = map(_unescaped, fields[3:5])
    kind, _, device_and_options = after.rstrip("\n").partition(" ")
    return Mount(path, kind, flags, root=root, options=device_and_options.rpartition(" ")[2].split(","))


def detach_from_host() -> None:
    """What is mounted here stays here, and what is mounted or unmounted outside stays there.  Raises OSError.

    Whatever arrived from outside later could be written, also where all else is read-only.
    """
    kernel.mount(None, "/", MS_REC | MS_PRIVATE)


def bind_to_itself(path: str) -> None:
    """Make it a mount, with those beneath, so that it can have flags of its own.  Raises OSError."""
    kernel.mount(path, path, MS_BIND | MS_REC)


def hide(path: str) -> None:
    """Nothing is there any more, nor can be, until the namespace is gone.  Raises OSError."""
    kernel.mount("none", path, MS_RDONLY, b"tmpfs")


def make_read_only(mount: Mount) -> None:
    """For this namespace alone.  Raises OSError.

    The other flags are given again: a user namespace must not take off what it found.
    """
    kernel.mount(None, mount.path, MS_REMOUNT | MS_BIND | MS_RDONLY | mount.flags)


def _unescaped(text: str) -> str:
    return _ESCAPED.sub(lambda escaped: chr(int(escaped[1], 8)), text)
