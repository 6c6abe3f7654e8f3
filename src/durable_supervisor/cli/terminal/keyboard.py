"""Single keys of a person at the terminal; Ctrl-C stays Ctrl-C."""

from __future__ import annotations

import asyncio
import os
import signal
import termios
import tty
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Any, Self

from .terminal import STDIN, is_interactive

_ROOM = 64
_ENDS = (signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM)


class Keyboard:
    """While the block lasts keys come unechoed, as they are typed; without a terminal none ever does.

    A signal that would end or stop this process does so once the terminal is as it was before: what is to
    be done at the block's end is done first.
    """

    def __init__(self, *, wanted: bool = True) -> None:
        self._wanted = wanted
        self._before: list[Any] | None = None
        self._ended_by: int | None = None
        self._typed = b""
        self._news = asyncio.Event()

    def __enter__(self) -> Self:
        if self._wanted and is_interactive():
            self._before = termios.tcgetattr(STDIN)
            self._watch_signals(asyncio.current_task())
            tty.setcbreak(STDIN, termios.TCSADRAIN)
            asyncio.get_running_loop().add_reader(STDIN, self._read)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._before is None:
            return
        self._stop_reading()
        self._give_back()
        self._forget_signals()
        if self._ended_by is not None:
            os.kill(os.getpid(), self._ended_by)

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

    def _watch_signals(self, work: asyncio.Task[Any] | None) -> None:
        loop = asyncio.get_running_loop()

        def end(signo: int) -> None:
            self._ended_by = signo
            loop.remove_signal_handler(signo)  # a second one need not wait for a terminal that stands still
            if work is not None:
                work.cancel()

        handlers: dict[int, Callable[[], None]] = {signo: partial(end, signo) for signo in _ENDS}
        for signo, handler in {**handlers, signal.SIGTSTP: self._suspend}.items():
            if signal.getsignal(signo) is not signal.SIG_IGN:  # under nohup, say
                loop.add_signal_handler(signo, handler)

    def _forget_signals(self) -> None:
        for signo in (*_ENDS, signal.SIGTSTP):
            asyncio.get_running_loop().remove_signal_handler(signo)

    def _suspend(self) -> None:
        """Stop this process as Ctrl-Z does, and no more: SIGSTOP would also stop one that no shell is there
        to continue (its process group is orphaned, as under ``ssh -t host dsup replay``).
        """
        self._give_back()
        watched = signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        signal.raise_signal(signal.SIGTSTP)  # it returns when we are continued
        signal.signal(signal.SIGTSTP, watched)
        with suppress(termios.error):  # hung up meanwhile: SIGHUP ends us
            tty.setcbreak(STDIN, termios.TCSADRAIN)

    def _give_back(self) -> None:
        if self._before is not None:
            with suppress(termios.error):  # hung up: there is nothing to restore
                termios.tcsetattr(STDIN, termios.TCSADRAIN, self._before)

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
