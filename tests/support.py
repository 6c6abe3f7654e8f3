"""Helpers that tests share: waiting on conditions, and ending what a test started."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

T = TypeVar("T")

_FIRST_PAUSE = 0.002
_LONGEST_PAUSE = 0.05


def eventually(predicate: Callable[[], T], timeout: float = 30, message: str = "") -> T:
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


async def eventually_async(predicate: Callable[[], Any], timeout: float = 30, message: str = "") -> Any:
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


def _too_late(predicate: object, timeout: float, value: object) -> str:
    return f"not so after {timeout} s: {predicate}, last {value!r}"


def _try(predicate: Callable[[], T]) -> tuple[T | None, AssertionError | None]:
    try:
        return predicate(), None
    except AssertionError as error:
        return None, error


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
