"""Calling a call off from outside: from another task, another thread, or a signal handler."""

from __future__ import annotations

from collections.abc import Callable


class _Word:
    """What was said at a `CancellationToken.cancel`."""

    __slots__ = ("reason",)

    def __init__(self, reason: str) -> None:
        self.reason = reason


class CancellationToken:
    """Says once, and for good, that what it was given to shall end.  Any number of calls may share one.

    Without locks: a signal handler may come in the middle of any method here, in the very thread that
    holds the lock.  So each step is a single operation of a dict.
    """

    __slots__ = ("_callbacks", "_said")

    def __init__(self) -> None:
        self._said: dict[None, _Word] = {}
        self._callbacks: dict[object, Callable[[], object]] = {}

    @property
    def cancelled(self) -> bool:
        return bool(self._said)

    @property
    def reason(self) -> str | None:
        """What was given to `cancel`; None before it."""
        said = self._said.get(None)
        return None if said is None else said.reason

    def cancel(self, reason: str = "") -> bool:
        """Call it off.  False when it was already; the first reason stays.

        Callbacks run here, in the calling thread, each once.  One that raises keeps none of the others
        from running; its exception comes out of here afterwards.
        """
        word = _Word(reason)
        first = self._said.setdefault(None, word) is word
        self._tell()
        return first

    def on_cancel(self, callback: Callable[[], object]) -> Callable[[], None]:
        """Call ``callback`` when it is cancelled, or now if it is.  Answers with how to forget about it."""
        key = object()
        self._callbacks[key] = callback
        if self.cancelled:  # since before, or since the line above: whoever takes it out calls it
            self._tell()

        def forget() -> None:
            self._callbacks.pop(key, None)

        return forget

    def _tell(self) -> None:
        while True:
            try:
                _, callback = self._callbacks.popitem()
            except KeyError:
                return
            try:
                callback()
            except BaseException:
                self._tell()
                raise
