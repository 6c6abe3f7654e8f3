"""Work that is done in another thread's loop, for a task or for a thread that waits here."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ..model.errors import ErrorCode, Phase, SupervisorError

if TYPE_CHECKING:
    from ..model.events import Event
    from .session import Session

T = TypeVar("T")
_LOOK_AGAIN = 1.0  # seconds
_MOST_CANCELS = 2  # on their way at once: one calls off, another hastens


class Errand(Generic[T]):
    """One coroutine on its way through another loop.  ``over`` is called there when it has ended."""

    def __init__(
        self, work: Coroutine[Any, Any, T], loop: asyncio.AbstractEventLoop, over: Callable[[], object]
    ) -> None:
        self._work = work
        self._loop = loop
        self._over = over
        self._task: asyncio.Task[T] | None = None
        self._sent = 0  # cancellations; written by the caller's thread only, as the next by the loop's
        self._delivered = 0
        try:
            loop.call_soon_threadsafe(self._begin)
        except RuntimeError:
            work.close()
            raise gone() from None

    def cancel(self) -> None:
        """As `asyncio.Task.cancel`, as often as that is called; but no faster than the loop takes it.

        A scope of anyio cancels with every turn of its own loop: unbounded, the other would drown in it.
        """
        if self._sent - self._delivered >= _MOST_CANCELS:
            return
        self._sent += 1
        with suppress(RuntimeError):  # the loop is closed: all in it has ended
            self._loop.call_soon_threadsafe(self._deliver_cancel)

    def result(self) -> T:
        """What came of it.  Raises ``SUPERVISOR_CLOSED`` where its loop has ended it, not we."""
        if self._task is None or not self._task.done() or self._task.cancelled():
            raise gone()
        return self._task.result()

    def _deliver_cancel(self) -> None:
        self._delivered += 1
        if self._task is not None:
            self._task.cancel()

    def _begin(self) -> None:
        self._task = self._loop.create_task(self._work)
        self._task.add_done_callback(lambda _: self._over())


async def send(work: Coroutine[Any, Any, T], loop: asyncio.AbstractEventLoop) -> T:
    """Wait for it here.  A cancellation is passed on, and raised when it has ended."""
    home, over = asyncio.get_running_loop(), asyncio.Event()
    errand = Errand(work, loop, lambda: _wake(home, over))
    cancelled: asyncio.CancelledError | None = None
    while not over.is_set():
        try:
            await over.wait()
        except asyncio.CancelledError as error:
            cancelled = error
            errand.cancel()
    if cancelled is not None:
        raise cancelled
    return errand.result()


def block(work: Coroutine[Any, Any, T], loop: asyncio.AbstractEventLoop) -> T:
    """Wait for it in this thread.  An interruption (Ctrl-C) cancels it, and is raised when it has ended."""
    over = threading.Event()
    errand = Errand(work, loop, over.set)
    interrupted: BaseException | None = None
    while True:
        try:
            while not over.wait(_LOOK_AGAIN) and not loop.is_closed():
                pass
            break
        except BaseException as error:  # noqa: BLE001  whatever a signal handler raises here
            interrupted = error
            errand.cancel()
    if interrupted is not None:
        raise interrupted
    return errand.result()


class Elsewhere:
    """The verbs of a session that lives in another thread's loop."""

    def __init__(self, session: Session, loop: asyncio.AbstractEventLoop) -> None:
        self.session = session
        self.loop = loop

    @property
    def state_dir(self) -> str:
        return self.session.state_dir

    def __getattr__(self, verb: str) -> Callable[..., Coroutine[Any, Any, Any]]:
        method = getattr(self.session, verb)
        return lambda *args, **options: send(method(*args, **options), self.loop)

    async def follow(self, run: str, **options: Any) -> AsyncGenerator[Event, None]:
        """See `Observer.follow`; a page of events for each way there and back."""
        pages = self.session.follow_pages(run, **options)
        try:
            while (page := await send(following(pages), self.loop)) is not None:
                for event in page.events:
                    yield event
        finally:
            await send(pages.aclose(), self.loop)


async def following(items: AsyncGenerator[T, None]) -> T | None:
    """The next of them; None at the end."""
    return await anext(items, None)


def gone() -> SupervisorError:
    return SupervisorError(
        ErrorCode.SUPERVISOR_CLOSED,
        "the loop that it lives in has ended",
        phase=Phase.RUN,
        hint="a process that is about to exit starts and follows nothing more",
    )


def _wake(loop: asyncio.AbstractEventLoop, over: asyncio.Event) -> None:
    with suppress(RuntimeError):  # whoever waited is gone, with the loop
        loop.call_soon_threadsafe(over.set)
