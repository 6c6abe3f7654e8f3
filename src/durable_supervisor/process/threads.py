"""Blocking work of an event loop, in threads of a pool: done now, or never."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable
from concurrent.futures import Executor
from threading import Lock
from typing import Any, TypeVar

T = TypeVar("T")


def in_thread(pool: Executor, work: Callable[[], T]) -> asyncio.Future[T]:
    """What it returns or raises, on the running loop.  (`run_in_executor` chains two futures, which costs
    as much as most of the work here.)

    Raises OSError EAGAIN where no thread can be had.  A pool has queued the work by then, for the next of its
    threads that is free: as nobody waits for it any more, the descriptors that it knows may be others'.
    """
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[T] = loop.create_future()
    claim = Lock()  # on the work: of a thread that does it, or of us, so that none does
    try:
        pool.submit(_do, claim, loop, answer, work)
    except RuntimeError as error:
        if claim.acquire(blocking=False):
            raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN)) from error
    return answer


def _do(
    claim: Lock, loop: asyncio.AbstractEventLoop, answer: asyncio.Future[T], work: Callable[[], T]
) -> None:
    """In a thread.  Should the loop be closed by then, nobody waits any more."""
    if not claim.acquire(blocking=False):
        return
    try:
        result = work()
    except BaseException as error:  # noqa: BLE001  (whatever it is, it is the caller's)
        loop.call_soon_threadsafe(_settle, answer, None, error)
    else:
        loop.call_soon_threadsafe(_settle, answer, result, None)


def _settle(answer: asyncio.Future[Any], result: object, error: BaseException | None) -> None:
    if answer.done():
        return  # its caller was cancelled
    if error is None:
        answer.set_result(result)
    else:
        answer.set_exception(error)
