"""What `Supervisor.open` answers with: to be entered, or awaited."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .supervisor import Supervisor


class Opening:
    """A supervisor about to be opened: ``async with`` it, or await it."""

    def __init__(self, opener: Callable[[], Awaitable[Supervisor]]) -> None:
        self._opener = opener
        self._opened: Supervisor | None = None

    def __await__(self) -> Generator[Any, None, Supervisor]:
        return self._opener().__await__()

    async def __aenter__(self) -> Supervisor:
        self._opened = await self._opener()
        return self._opened

    async def __aexit__(self, *exc: object) -> None:
        if self._opened is not None:
            await self._opened.close()
