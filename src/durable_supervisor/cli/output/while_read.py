"""Following for somebody: no longer than he reads."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from . import out


@asynccontextmanager
async def while_read() -> AsyncIterator[None]:
    """BrokenPipeError in the body as soon as nobody reads stdout, not at the next line.

    That may never come: ``dsup logs -f RUN | grep -m1 ready`` would hang after the line that it was about.
    """
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    if task is None or not _is_pipe(out.STDOUT):
        yield
        return
    gone = False

    def leave() -> None:
        nonlocal gone
        gone = True
        loop.remove_reader(out.STDOUT)
        task.cancel()

    # There is nothing to be read from this end: what epoll(7) tells of it is EPOLLERR alone.
    loop.add_reader(out.STDOUT, leave)
    try:
        yield
    except asyncio.CancelledError:
        if gone and task.uncancel() == 0:
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE)) from None
        raise
    finally:
        loop.remove_reader(out.STDOUT)


def _is_pipe(descriptor: int) -> bool:
    """The end of one that can only be written to?"""
    mode = fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE
    return mode == os.O_WRONLY and stat.S_ISFIFO(os.fstat(descriptor).st_mode)
