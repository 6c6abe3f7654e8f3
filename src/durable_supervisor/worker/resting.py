"""What a worker does once its run has been silent for a second: it shares its memory with others again."""

from __future__ import annotations

import math
import os
import signal
import time

from .poller import Poller

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..process.samepage.merge import Merger

_TIMER = "rest"
_SECONDS = 1.0
_MODEL_SECONDS = 0.1
# Each after twice the pause: the first may have asked for the image, a sync be under way, or the model have
# given memory back just as that was to become the image.
_TRIES = 3
_merger: Merger | None = None


def use(merger: Merger) -> None:
    """In this process, and in all that are forked from it."""
    global _merger
    _merger = merger


def descriptors() -> set[int]:
    """What is open for it, for as long as a worker lives."""
    return set() if _merger is None else {_merger.fd, _merger.wanted}


def share(epoll: int = -1, timeout: float = 0.0, *, fills: bool = False) -> bool:
    """Now, and wait then, if there is what to wait with.  False where it cannot be done at the moment.

    ``fills``: make what the others share.
    """
    try:
        return _merger is not None and _merger.settle((epoll, math.ceil(timeout * 1000)), fills=fills)
    except (OSError, MemoryError):
        return False  # for want of a descriptor, say, or of a file as large as that


class Resting:
    """Waits for the silence, once after each thing that happens: who stays silent is not woken again."""

    def __init__(self, poller: Poller, *, model: bool) -> None:
        self._poller = poller
        self._model = model
        self._pause = _MODEL_SECONDS if model else _SECONDS
        self._disturbed = False
        self._looking = False

    def turned(self) -> None:
        """To be called after each turn of the loop."""
        if self._looking:  # it was a turn of our own
            self._looking = False
        elif self._poller.armed(_TIMER):
            self._disturbed = True
        elif _merger is not None:
            self._wait(self._pause, _TRIES)

    def _wait(self, pause: float, tries: int) -> None:
        self._disturbed = False
        self._poller.at(_TIMER, time.monotonic() + pause, lambda: self._look(pause, tries))

    def _look(self, pause: float, tries: int) -> None:
        self._looking = True
        if self._disturbed:
            self._wait(self._pause, _TRIES)
        else:
            self._poller.rest(lambda epoll, timeout: self._settle(epoll, timeout, pause, tries))

    def _settle(self, epoll: int, timeout: float, pause: float, tries: int) -> None:
        shared = share(epoll, timeout, fills=self._model)
        if not shared and tries > 1:
            self._wait(2 * pause, tries - 1)
        elif self._model:  # it has nothing to do any more, whatever came of it
            os.kill(os.getpid(), signal.SIGTERM)


def go_through() -> None:
    """All that a worker does then, with nothing to share yet."""
    poller = Poller()
    try:
        resting = Resting(poller, model=False)
        resting.turned()
        resting.turned()
        for tries in (2, 2, 1):
            resting._look(0.0, tries)
            resting.turned()
            poller.at("now", time.monotonic(), lambda: None)
            poller.turn()
    finally:
        poller.close()
    if _merger is not None:
        _merger.go_through()
