"""A small event loop: descriptors and timers, one thread, no polling at rest."""

from __future__ import annotations

import select
import time
from collections.abc import Callable

READ = select.EPOLLIN
WRITE = select.EPOLLOUT
END = select.EPOLLONESHOT  # only that nobody has the other end any more, and that only once
_LONGEST_WAIT = 86400.0  # epoll_wait(2) takes milliseconds as an int: 24 days would be too much

Rest = Callable[[int, float], None]  # an epoll's descriptor, and a timeout as `select.epoll.poll` takes it


class Poller:
    """``watch`` a descriptor, ``at`` a time call back; `turn` waits for the next of them."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._callbacks: dict[int, Callable[[int], None]] = {}
        self._timers: dict[str, tuple[float, Callable[[], None]]] = {}
        self._at_rest: Rest | None = None

    def watch(self, fd: int, mask: int, callback: Callable[[int], None]) -> None:
        """Call ``callback(events)`` while ``fd`` is ready; watching it again changes the mask."""
        if fd in self._callbacks:
            self._epoll.modify(fd, mask)
        else:
            self._epoll.register(fd, mask)
        self._callbacks[fd] = callback

    def forget(self, fd: int) -> None:
        """Stop watching; to be called before the descriptor is closed."""
        if self._callbacks.pop(fd, None) is not None:
            self._epoll.unregister(fd)

    def at(self, name: str, when: float, callback: Callable[[], None]) -> None:
        """Call back once at monotonic time ``when``; a timer of the same name is replaced."""
        self._timers[name] = (when, callback)

    def armed(self, name: str) -> bool:
        return name in self._timers

    def cancel(self, name: str) -> None:
        self._timers.pop(name, None)

    def rest(self, rest: Rest) -> None:
        """Call it before the next turn waits; it may wait itself, for what that turn would."""
        self._at_rest = rest

    def close(self) -> None:
        """Nothing is watched any more."""
        self._epoll.close()
        self._callbacks.clear()
        self._timers.clear()

    def turn(self) -> None:
        """Wait for the next readiness or timer, and serve all that are due."""
        if self._at_rest is not None:
            rest, self._at_rest = self._at_rest, None
            rest(self._epoll.fileno(), self._left())
        for fd, events in self._epoll.poll(self._left()):
            callback = self._callbacks.get(fd)
            if callback is not None:  # an earlier callback of this turn may have dropped it
                callback(events)
        now = time.monotonic()
        for name, (when, due) in list(self._timers.items()):
            if when <= now and self._timers.get(name, (0.0, None))[0] == when:
                del self._timers[name]
                due()

    def _left(self) -> float:
        """Seconds until the next timer is due; -1 where there is none."""
        if not self._timers:
            return -1.0
        left = min(when for when, _ in self._timers.values()) - time.monotonic()
        return min(max(left, 0.0), _LONGEST_WAIT)
