"""Single keys of a person at the terminal; Ctrl-C stays Ctrl-C."""

from __future__ import annotations

import asyncio
import os
import termios
import tty
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from .terminal import STDIN, is_interactive

_ROOM = 64


class Keyboard:
    """While the block lasts keys come unechoed, as they are typed; without a terminal none ever does."""

    def __init__(self, *, wanted: bool = True) -> None:
        self._wanted = wanted
        self._before: list[Any] | None = None
        self._typed = b""
        self._news = asyncio.Event()

    def __enter__(self) -> Self:
        if self._wanted and is_interactive():
            self._before = termios.tcgetattr(STDIN)
            tty.setcbreak(STDIN, termios.TCSADRAIN)
            asyncio.get_running_loop().add_reader(STDIN, self._read)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._before is None:
            return
        self._stop_reading()
        with suppress(termios.error):  # hung up: there is nothing to restore
            termios.tcsetattr(STDIN, termios.TCSADRAIN, self._before)

    @property
    def there(self) -> bool:
        """Is there somebody to type?"""
        return self._before is not None

    async def typed(self, timeout: float | None) -> bytes:
        """What was typed since the last call; waits for it up to ``timeout`` seconds (None: for ever)."""
        if timeout == 0:
            await asyncio.sleep(0)  # so that a key is seen also where no event has to be waited for
        elif not self._typed:
            self._news.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(timeout):
                    await self._news.wait()
        typed, self._typed = self._typed, b""
        return typed

    def _read(self) -> None:
        try:
            data = os.read(STDIN, _ROOM)
        except OSError:
            data = b""
        if not data:  # hung up
            self._stop_reading()
        self._typed += data
        self._news.set()

    def _stop_reading(self) -> None:
        asyncio.get_running_loop().remove_reader(STDIN)
