"""The tree of a program: every descendant of its worker.

The worker is a child subreaper (prctl(2) PR_SET_CHILD_SUBREAPER): a descendant
whose parent dies becomes the worker's own child, whatever session or group it
moved to.  So "all descendants of the worker" is the whole tree, and ECHILD from
waitid(2) proves that nothing is left of it.
"""

from __future__ import annotations

import _thread
import os

from . import own
from .identity import Stat, read_stat
from .signals import signal_ticks
from .usage import Usage


def descendants(root: int) -> list[Stat]:
    """Every living descendant of ``root``, parents before children; zombies left out.

    A snapshot: what forks meanwhile shows in the next one.
    """
    found: list[Stat] = []
    seen = {root}
    queue = children_of(root)
    while queue:
        pid = queue.pop()
        if pid in seen:
            continue
        try:
            stat = read_stat(pid)
        except PermissionError:  # another user's, on a /proc mounted with hidepid
            continue
        if stat is None or stat.ppid not in seen:
            continue  # reaped since it was listed, and its pid may be a stranger's by now
        seen.add(pid)
        if not stat.dead:
            found.append(stat)
        queue.extend(children_of(pid))
    return found


def is_gone() -> bool:
    """Is nothing left of our own?  waitid(2) fails with ECHILD exactly when no child of any kind remains."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return True
    return False


def children_of(pid: int) -> list[int]:
    """Direct children, zombies included (``/proc/<pid>/task/<tid>/children``, proc(5))."""
    children: list[int] = []
    try:
        tasks = _tasks(pid)
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return children
    for task in tasks:
        try:
            children.extend(map(int, own.read(children_file(pid, task)).split()))
        except (FileNotFoundError, ProcessLookupError):
            if os.path.exists(f"/proc/{pid}/task/{task}/stat"):
                return _children_by_scan(pid)  # a kernel without CONFIG_PROC_CHILDREN
    return children


def children_file(pid: int, task: int | str) -> str:
    """Where in /proc the children of one thread are listed; a process's first has its number."""
    return f"{pid}/task/{task}/children"


def _tasks(pid: int) -> list[str]:
    """The threads of a process, each of which may have children.  Raises OSError."""
    if pid == os.getpid() and not _thread._count():  # a worker, at each run's end: nothing but its first
        return [str(pid)]
    return os.listdir(f"/proc/{pid}/task")


def signal_all(processes: list[Stat], signo: int) -> list[int]:
    """Signal each process that still is the one listed; returns the pids reached."""
    return [one.pid for one in processes if signal_ticks(one.pid, one.start_ticks, signo)]


def at_terminal(processes: list[Stat], leader: int) -> list[Stat]:
    """Of these, the ``leader`` of a session and the foreground group of its terminal; none if it has none."""
    foreground = next((one.foreground for one in processes if one.pid == leader), -1)
    return [one for one in processes if foreground > 0 and (one.pid == leader or one.group == foreground)]


def ignores(one: Stat, signo: int) -> bool:
    """Would this signal mean nothing to it?"""
    return _has_in(one, b"SigIgn:", signo)


def catches(one: Stat, signo: int) -> bool:
    """Has it a handler for this signal?"""
    return _has_in(one, b"SigCgt:", signo)


def _has_in(one: Stat, name: bytes, signo: int) -> bool:
    """By a mask of ``/proc/<pid>/status`` (proc(5))."""
    try:
        with open(f"/proc/{one.pid}/status", "rb") as file:
            masks = [line.split()[1] for line in file if line.startswith(name)]
    except OSError:
        return False
    return bool(masks) and bool(int(masks[0], 16) >> (signo - 1) & 1)


def reap_others(leader: int, usage: Usage) -> bool:
    """Reap every dead child except the leader, whose zombie pins its pid until the end.

    True where the leader is the only one that is left.
    """
    children = children_of(os.getpid())
    gone = [pid for pid in children if pid != leader and _gone(pid, usage)]
    if gone:
        children = children_of(os.getpid())  # who lived when they were listed has left us its own since
    return children == [leader]


def _gone(pid: int, usage: Usage) -> bool:
    """Is this child none any more?  Where it was dead, it is reaped."""
    try:
        reaped, _, used = os.wait4(pid, os.WNOHANG)
    except ChildProcessError:
        return True
    if reaped:
        usage.add(used)
    return bool(reaped)


def marked(variable: str, value: str) -> list[Stat]:
    """Living processes of our user whose environment, as they were started with, has ``variable=value``."""
    wanted = f"{variable}={value}".encode()
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            stat = read_stat(int(name))  # before the environment: a pid reused in between fails the signal
            with open(f"/proc/{name}/environ", "rb") as file:
                holds = wanted in file.read().split(b"\0")
        except OSError:
            continue
        if holds and stat is not None and not stat.dead:
            found.append(stat)
    return found


def _children_by_scan(pid: int) -> list[int]:
    children = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            stat = read_stat(int(name))
            if stat is not None and stat.ppid == pid:
                children.append(stat.pid)
    return children
