"""Which paths a program may use: the grants, and what it needs to be executed at all.

``docs/policy.md`` lists the base; the two say the same.
"""

from __future__ import annotations

import os
import stat

from ..plan import Files, Refused

READ, EXECUTE, WRITE, ALL, DEVICE = "read", "execute", "write", "all", "device"

# Programs and libraries.
EXECUTABLE = ("/usr", "/lib", "/lib64", "/lib32", "/libx32", "/bin", "/sbin")
# What the loader and libc read, and what it takes to find a host and trust it; and the one configuration
# without which its program, git, gives up.  All of them are open to every user of a machine.
READABLE = (
    "/etc/alternatives",
    "/etc/ca-certificates",
    "/etc/gai.conf",
    "/etc/gitconfig",
    "/etc/group",
    "/etc/host.conf",
    "/etc/hosts",
    "/etc/inputrc",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/locale.alias",
    "/etc/localtime",
    "/etc/magic",
    "/etc/mime.types",
    "/etc/nsswitch.conf",
    "/etc/os-release",
    "/etc/passwd",
    "/etc/pki/ca-trust",
    "/etc/pki/tls/certs",
    "/etc/protocols",
    "/etc/resolv.conf",
    "/etc/services",
    "/etc/shells",
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",
    "/etc/terminfo",
    "/etc/timezone",
)
_ANYBODY_EXECUTES = 0o111
DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty")


class Open:
    """A path that may be used, held by a descriptor that names it and opens nothing (O_PATH)."""

    __slots__ = ("access", "fd", "path")

    def __init__(self, path: str, access: str, fd: int) -> None:
        self.path = path
        self.access = access
        self.fd = fd


def open_grants(files: Files) -> list[Open]:
    """Each of them, proven to be what it was when the run was admitted.  Raises Refused."""
    found = []
    for path, access, device, inode in files.grants:
        try:
            fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError as error:
            raise Refused("files", f"a grant cannot be opened any more: {error.strerror}") from None
        status = os.fstat(fd)
        if (status.st_dev, status.st_ino) != (device, inode):
            raise Refused("files", "a grant is not what it was when the run was admitted")
        found.append(Open(path, access, fd))
    return found


def open_base(*, terminal: bool) -> list[Open]:
    """What is there of the base, and the program's terminal, where it has one."""
    wanted = [
        *((path, EXECUTE) for path in EXECUTABLE),
        *((path, READ) for path in READABLE),
        *((path, DEVICE) for path in DEVICES),
    ]
    if terminal:
        wanted.append(("/proc/self/fd/0", DEVICE))
    found = []
    for path, access in wanted:
        try:
            found.append(Open(path, access, os.open(path, os.O_PATH | os.O_CLOEXEC)))
        except OSError:
            continue  # not on this machine
    return found


def open_program(path: str) -> Open:
    """The program itself, which may be executed wherever it is.  Raises Refused.

    Somebody may have put another file there since the path was looked up; one that nobody could
    execute is not made readable by that.
    """
    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError as error:
        raise Refused("files", f"the program cannot be opened any more: {error.strerror}") from None
    mode = os.fstat(fd).st_mode
    if not stat.S_ISREG(mode) or not mode & _ANYBODY_EXECUTES:
        raise Refused("files", "the program is not what it was when it was looked up")
    return Open(path, EXECUTE, fd)


def close_all(paths: list[Open]) -> None:
    for path in paths:
        os.close(path.fd)
