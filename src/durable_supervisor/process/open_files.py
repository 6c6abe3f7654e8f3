"""How many descriptors this process may have; what it starts keeps the limit that it came with."""

from __future__ import annotations

import resource

_came_with: tuple[int, int] | None = None


def raise_limit() -> int:
    """The soft limit, raised as far as the hard one allows."""
    global _came_with
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == hard:
        return soft
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    _came_with = _came_with or (soft, hard)
    return hard


def give_back(pid: int) -> None:
    """Let a child that was just spawned have the limit that we came with.

    Programs rely on it: select(2) fails above 1024, and some close every number up to the
    limit.  The child is still loading its interpreter, so nothing runs with ours.
    """
    if _came_with is None:
        return
    try:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, _came_with)
    except OSError:
        return  # it is gone already
