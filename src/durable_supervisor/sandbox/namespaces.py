"""Namespaces of its own for a program: an empty network, and mounts in which the kernel is only read.

A plain user makes them inside a user namespace, in which every id is what it is outside.
What the maker of a user namespace may do in it must be gone before the program is
executed: `privileges.drop` comes after.  Kill and inspection from outside work as ever.
"""

from __future__ import annotations

import fcntl
import os
import socket
import struct

from . import mounts
from .kernel import unshare, write
from .trial import succeeds

_CLONE_NEWNS, _CLONE_NEWUSER, _CLONE_NEWNET = 0x00020000, 0x10000000, 0x40000000  # unshare(2)
# Queues and shared memory by number or name (ipc_namespaces(7)) lead outside as sockets and files do.
_CLONE_NEWIPC = 0x08000000
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 1  # netdevice(7)
_IFREQ = struct.Struct("16sh14x")
_CAP_SYS_ADMIN = 21
# File systems of the kernel's own, but for /proc, where a process has its business.
_STEERING = (
    "cgroup",
    "cgroup2",
    "sysfs",
    "debugfs",
    "tracefs",
    "securityfs",
    "selinuxfs",
    "smackfs",
    "configfs",
    "efivarfs",
    "pstore",
    "resctrl",
    "fusectl",
    "bpf",
    "binfmt_misc",
    "nfsd",
    "rpc_pipefs",
    "xenfs",
)
_SETTINGS = ("acpi", "bus", "fs", "irq", "mtrr", "scsi", "sys", "sysrq-trigger")  # in /proc
_A_SETTING = "/proc/sys/kernel/core_pattern"


def enter(wanted: dict[str, bool], *, loopback: bool = False) -> dict[str, str]:
    """Make those of ``user``, ``net`` and ``mount`` that are wanted; which of them failed, and why.

    ``loopback``: the new network has 127.0.0.1 and ::1, that nobody else is on; without it there is
    nothing at all.  The caller is a single-threaded process that goes on to be the program.
    Raises OSError where it is left in a state that no program should find itself in.
    """
    if wanted["user"]:
        uid, gid = os.geteuid(), os.getegid()
        try:
            unshare(_CLONE_NEWUSER)
        except OSError as error:
            reason = f"no user namespace: {error.strerror}"
            return {name: reason for name in wanted if wanted[name]}
        _same_ids(uid, gid)
    failed: dict[str, str] = {}
    if wanted["net"]:
        try:
            _own_network(loopback)
        except OSError as error:
            failed["net"] = f"no network namespace: {error.strerror}"
    if wanted["mount"]:
        try:
            _own_mounts()
        except OSError as error:
            failed["mount"] = f"no mount namespace: {error.strerror}"
    return failed


def probe() -> dict[str, bool]:
    """Which can be made.  ``privileged``: the others without ``user``; else they are made inside one.

    ``settings``: the user may write those of the kernel, where no ``mount`` keeps it from that.
    """
    privileged = _may_administer()
    return {
        "settings": os.access(_A_SETTING, os.W_OK),
        "privileged": privileged,
        "user": _makes("user", inside_user=True),
        "net": _makes("net", inside_user=not privileged),
        "mount": _makes("mount", inside_user=not privileged),
    }


def _makes(name: str, *, inside_user: bool) -> bool:
    wanted = {"user": inside_user, "net": False, "mount": False, name: True}

    def make() -> bool:
        os.chdir("/")  # whoever asks may stand in a directory that is gone, which no program will
        return not enter(wanted, loopback=True)

    return succeeds(make)


def _same_ids(uid: int, gid: int) -> None:
    """In the new user namespace they are what they are outside.  Other groups count on, without a name."""
    write("/proc/self/uid_map", f"{uid} {uid} 1")
    # Who could drop a group would get at what is denied to just that group (user_namespaces(7)).
    write("/proc/self/setgroups", "deny")
    write("/proc/self/gid_map", f"{gid} {gid} 1")


def _own_network(loopback: bool) -> None:
    unshare(_CLONE_NEWNET | _CLONE_NEWIPC)
    if loopback:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as anyone:
            name, flags = _IFREQ.unpack(fcntl.ioctl(anyone, _SIOCGIFFLAGS, _IFREQ.pack(b"lo", 0)))
            fcntl.ioctl(anyone, _SIOCSIFFLAGS, _IFREQ.pack(name, flags | _IFF_UP))


def _own_mounts() -> None:
    """What steers the kernel, control groups first, can be read as before, and not be written."""
    unshare(_CLONE_NEWNS | _CLONE_NEWIPC)
    mounts.detach_from_host()
    is_root = os.geteuid() == 0
    for mount in mounts.mounts():
        if mount.kind in _STEERING and os.path.exists(mount.path):  # or it is beneath another mount
            mounts.make_read_only(mount)
        elif mount.kind == "proc" and is_root:
            _keep_settings(mount)
    if is_root:
        os.chdir(os.getcwd())  # we may stand among the settings, beneath the mounts that cover them now


def _keep_settings(proc: mounts.Mount) -> None:
    """To write these it is enough to be root; core_pattern names what the kernel executes, outside."""
    for name in _SETTINGS:
        path = os.path.join(proc.path, name)
        if os.path.exists(path):
            mounts.bind_to_itself(path)
            mounts.make_read_only(mounts.Mount(path, proc.kind, proc.flags))


def _may_administer() -> bool:
    with open("/proc/self/status", "rb") as file:
        (line,) = [line for line in file if line.startswith(b"CapEff:")]
    return bool(int(line.split()[1], 16) >> _CAP_SYS_ADMIN & 1)
