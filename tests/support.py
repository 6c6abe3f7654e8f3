"""Helpers that tests share: waiting on conditions, and ending what a test started."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from durable_supervisor import Supervisor

T = TypeVar("T")

# Seconds, for what must come.  A deadline costs nothing when all is well, and where others use the processors
# what needs a tenth of a second can take many.
PATIENCE = 60.0
_FIRST_PAUSE = 0.002
_LONGEST_PAUSE = 0.05


def eventually(predicate: Callable[[], T], timeout: float = PATIENCE, message: str = "") -> T:
    """Poll ``predicate`` until it is truthy and return its value; AssertionError after ``timeout`` seconds.

    An AssertionError raised by the predicate counts as "not yet" and is chained
    to the final one, so that a predicate may itself be written with ``assert``.
    """
    deadline = time.monotonic() + timeout
    pause = _FIRST_PAUSE
    while True:
        value, cause = _try(predicate)
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(message or _too_late(predicate, timeout, value)) from cause
        time.sleep(pause)
        pause = min(pause * 1.5, _LONGEST_PAUSE)


async def eventually_async(predicate: Callable[[], Any], timeout: float = PATIENCE, message: str = "") -> Any:
    """`eventually` for a loop: ``predicate`` may be a plain or an async function."""
    deadline = time.monotonic() + timeout
    pause = _FIRST_PAUSE
    while True:
        cause: AssertionError | None = None
        value: Any = None
        try:
            value = predicate()
            if isinstance(value, Awaitable):
                value = await value
        except AssertionError as error:
            cause = error
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(message or _too_late(predicate, timeout, value)) from cause
        await asyncio.sleep(pause)
        pause = min(pause * 1.5, _LONGEST_PAUSE)


def is_log(link: str) -> bool:
    """Does this, of a descriptor in /proc, stand for a run log?  One made ahead has no name there."""
    return link.endswith(".log") or "/runs/#" in link


def is_next_log(fd: str, of: int | str = "self") -> bool:
    """Is this descriptor of an owner the next run's log, which has no name yet?"""
    path = f"/proc/{of}/fd/{fd}"
    return "/runs/#" in os.readlink(path) and os.stat(path).st_nlink == 0


async def has_next_log(sup: Supervisor) -> None:
    """Return once the next run's log is there to be used: it is made when a start has been answered."""
    log = sup._dispatcher._next_log
    await eventually_async(lambda: log.is_there, message="the next run's log is never made")


def _too_late(predicate: object, timeout: float, value: object) -> str:
    return f"not so after {timeout} s: {predicate}, last {value!r}"


def _try(predicate: Callable[[], T]) -> tuple[T | None, AssertionError | None]:
    try:
        return predicate(), None
    except AssertionError as error:
        return None, error


def can_read_nonblocking(directory: Path) -> bool:
    """Does this file system have reads that never wait?  (tmpfs has none.)"""
    file = directory / "read"
    file.write_bytes(b"x")
    fd = os.open(file, os.O_RDONLY | os.O_NOATIME)
    try:
        return os.preadv(fd, [bytearray(1)], 0, os.RWF_NOWAIT) == 1
    except OSError:
        return False
    finally:
        os.close(fd)
        file.unlink()


def running(pid: int) -> bool:
    """Does this pid name a process that still runs?  A zombie does not."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    except (FileNotFoundError, ProcessLookupError):
        return False


def reap_state_dir(state_dir: str | os.PathLike[str]) -> list[int]:
    """SIGKILL the workers and programs that the logs of ``state_dir`` name, and all below them.

    Returns the pids reached.  Only processes whose recorded identity is proven are touched.
    """
    from durable_supervisor.testing import leftovers

    return leftovers.end_all(state_dir)
