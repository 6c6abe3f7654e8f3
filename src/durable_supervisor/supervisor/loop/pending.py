"""What opening answers with: to be entered, or awaited."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from typing import Any, Protocol, TypeVar


class Closable(Protocol):
    """Whatever lets go of what it holds."""

    async def close(self) -> None: ...


T = TypeVar("T", bound=Closable)


class Opening(Coroutine[Any, Any, T]):
    """Something about to be opened: ``async with`` it, or await it and call its ``close``.

    A coroutine as well, so that `asyncio.create_task` takes it.  One that is never awaited did nothing.
    """

    def __init__(self, opener: Callable[[], Coroutine[Any, Any, T]]) -> None:
        self._opener = opener
        self._running: Coroutine[Any, Any, T] | None = None
        self._opened: T | None = None

    def __await__(self) -> Generator[Any, None, T]:
        return self._work().__await__()

    def send(self, value: Any) -> Any:
        return self._work().send(value)

    def throw(self, *error: Any) -> Any:
        return self._work().throw(*error)

    def close(self) -> None:
        """Of the coroutine, when it is given up before its end; what it has opened has its own."""
        if self._running is not None:
            self._running.close()

    def _work(self) -> Coroutine[Any, Any, T]:
        if self._running is None:
            self._running = self._opener()
        return self._running

    async def __aenter__(self) -> T:
        self._opened = await self
        return self._opened

    async def __aexit__(self, *exc: object) -> None:
        if self._opened is not None:
            await self._opened.close()
