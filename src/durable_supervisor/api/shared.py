"""The session that calls use which name no supervisor: one for each process, in a thread of its own.

In a thread, so that it outlives any number of `asyncio.run`, and serves threads without a loop.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import sys
import threading
import weakref
from collections.abc import Callable

from ..process.places import state_directory
from .errand import block, gone
from .open import open as open_session
from .session import Session

_CLOSING_SECONDS = 10.0  # at exit: a start under way is finished whole, then the journal is closed


class Shared:
    """A thread with a loop, and in it a session for each state directory that was the default."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ending = asyncio.Event()
        self._sessions: dict[str, asyncio.Task[Session]] = {}
        self._callers: weakref.WeakSet[threading.Thread] = weakref.WeakSet()
        self._closed = False

    def loop(self) -> asyncio.AbstractEventLoop:
        """Of the thread, which begins with the first call.  Raises ``SUPERVISOR_CLOSED`` at exit."""
        with self._lock:
            if self._closed:
                raise gone()
            self._callers.add(threading.current_thread())
            if self._loop is None:
                _at_exit(self._exit)
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=self._live, args=(self._loop,), name="durable-supervisor", daemon=True
                )
                self._thread.start()
            return self._loop

    async def session(self) -> Session:
        """Of the state directory that is the default now.  To be awaited in the thread's loop."""
        path = state_directory(None)
        if path not in self._sessions:
            self._sessions[path] = asyncio.create_task(_open(path), name="durable-supervisor-open")
        opening = self._sessions[path]
        # However many wait for it, none of them can cancel it for the others.
        await asyncio.wait([opening])
        failed = opening.cancelled() or opening.exception() is not None
        if failed and self._sessions.get(path) is opening:
            del self._sessions[path]  # the next call tries again
        return opening.result()

    def release(self, state_dir: str | os.PathLike[str]) -> None:
        """Let go of one directory, as a test does with its own; a later call would open it anew."""
        with self._lock:
            loop = None if self._closed else self._loop
        if loop is not None:
            block(self._release(state_directory(state_dir)), loop)

    def close(self) -> None:
        """Let go of everything, and end the thread.  Runs that are of this process's scope end with it."""
        with self._lock:
            self._closed = True
            loop, thread = self._loop, self._thread
        if loop is not None and thread is not None and thread.is_alive():
            loop.call_soon_threadsafe(self._ending.set)
            thread.join(_CLOSING_SECONDS)

    def _exit(self) -> None:
        """Python waits for threads that are no daemons: these make their calls until they are done."""
        for thread in list(self._callers):
            if thread is not threading.main_thread() and not thread.daemon and not _is_pooled(thread):
                thread.join()
        self.close()

    def _live(self, loop: asyncio.AbstractEventLoop) -> None:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:  # which ends all that is left in it
            runner.run(self._until_closed())

    async def _until_closed(self) -> None:
        await self._ending.wait()
        for path in list(self._sessions):
            await self._release(path)

    async def _release(self, path: str) -> None:
        opening = self._sessions.pop(path, None)
        if opening is not None:
            await asyncio.wait([opening])
            if not opening.cancelled() and opening.exception() is None:
                await opening.result().close()


async def _open(path: str) -> Session:
    return await open_session(path)


def _at_exit(close: Callable[[], None]) -> None:
    """Before the interpreter waits for threads, which it does before what `atexit` knows: SQLite's would
    never end, and closing takes executors, which are shut down by then.  What the standard library's own
    executors use for the same has no public name.
    """
    register: Callable[[Callable[[], None]], object] = getattr(threading, "_register_atexit", atexit.register)
    try:
        register(close)
    except RuntimeError:  # the interpreter has come to its end
        raise gone() from None


def _is_pooled(thread: threading.Thread) -> bool:
    """Is it of an executor?  Those are told to end after us: who waited for one would wait for ever."""
    pools = sys.modules.get("concurrent.futures.thread")
    queues = getattr(pools, "_threads_queues", None)  # it has no public name either
    return pools is not None and (queues is None or thread in queues)


_shared = Shared()
_originals: list[Shared] = []  # of the process that this one was forked from: their finalizers are not ours


def shared() -> Shared:
    """This process's own."""
    return _shared


def _in_child() -> None:
    global _shared
    _originals.append(_shared)
    _shared = Shared()


os.register_at_fork(after_in_child=_in_child)
