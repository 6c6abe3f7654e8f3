"""Waiting in line to own a directory that goes from one short-lived owner to the next, such as commands.

Who polls for the lock gets it by luck, and where a hundred poll, they keep its owner from a processor.  In
flock(2) they sleep, and the kernel wakes the one that has waited longest.
"""

from __future__ import annotations

import errno
import fcntl
import threading
import time
from collections.abc import Callable

from ...model.errors import Phase
from ...process import forks
from ...process.places import may_be_served
from ..admission.host import short_of
from .state_dir import Ownership, StateDir, in_use, open_lock, read_owner

LONGEST_SECONDS = 300.0  # for all owners together
_LOOK_SECONDS = 0.1
_TELL_SECONDS = 1.0  # of silence, before a person is told what is waited for


async def take_in_turn(place: StateDir, wait: float, tell: Callable[[], None]) -> Ownership:
    """As `Ownership.take`, but ``wait`` is for each owner: as long as they change, it goes on.  Blocks.

    ``tell`` is called once, when the wait has become long.  Raises ``STATE_DIR_IN_USE`` also as soon as a
    service is in sight, for that one is to be asked; ``BUSY`` where no thread can be started.
    """
    ownership = Ownership.try_take(place)
    timeout = OwnerTimeout(place, wait, tell, time.monotonic)
    while ownership is None:
        ownership = _take_when_woken(place, timeout)
    return ownership


def _take_when_woken(place: StateDir, timeout: OwnerTimeout) -> Ownership | None:
    waiter = _LockWaiter(open_lock(place))
    try:
        while not waiter.is_woken(_LOOK_SECONDS):
            timeout.check()
    except BaseException:
        waiter.leave()
        raise
    ownership = Ownership.try_take(place, waiter.lock)
    if ownership is None:  # the directory itself is locked: by who found another lock file, or only looked
        timeout.check()
        time.sleep(_LOOK_SECONDS)
    return ownership


class _LockWaiter:
    """Waits for the ``lock`` in a thread: flock(2) has no deadline, and no signal that is ours to end it."""

    def __init__(self, lock: int) -> None:
        self.lock = lock
        self._woken = threading.Event()
        self._leaving = threading.Lock()
        self._left = False
        try:
            threading.Thread(target=self._sleep, daemon=True).start()
        except RuntimeError:  # threading says no more
            forks.close(lock)
            raise short_of(OSError(errno.EAGAIN, "no thread to be had"), Phase.OPEN) from None

    def _sleep(self) -> None:
        try:
            fcntl.flock(self.lock, fcntl.LOCK_EX)
        except OSError:  # `Ownership.try_take` meets it too, and tells
            pass
        with self._leaving:
            self._woken.set()
            if self._left:
                forks.close(self.lock)

    def is_woken(self, seconds: float) -> bool:
        """Wait so long; has it the lock, or failed to get it?  From then on ``lock`` is the caller's."""
        return self._woken.wait(seconds)

    def leave(self) -> None:
        """Give up: should it still get the lock, it lets go of it at once."""
        with self._leaving:
            if self._woken.is_set():
                forks.close(self.lock)
            self._left = True


class OwnerTimeout:
    """How long others may own ``place``: ``wait`` seconds for each, `LONGEST_SECONDS` for all."""

    def __init__(
        self, place: StateDir, wait: float, tell: Callable[[], None] | None, clock: Callable[[], float]
    ) -> None:
        self._clock = clock
        self._place = place
        self._wait, self._longest = wait, max(wait, LONGEST_SECONDS)
        self._tell = tell
        self._owner = b""
        self._began = self._since = clock()

    def check(self) -> None:
        """Raises ``STATE_DIR_IN_USE`` when it is over, or a service is in sight."""
        if self._tell is not None and self._clock() - self._began >= _TELL_SECONDS:
            self._tell()
            self._tell = None
        if self.is_over() or may_be_served(self._place.path):
            raise in_use(self._place)

    def is_over(self) -> bool:
        """To be asked all the time, so that every owner is seen."""
        now, owner = self._clock(), read_owner(self._place)
        if owner not in (b"", self._owner):
            self._owner, self._since = owner, now
        return now - self._since >= self._wait or now - self._began >= self._longest
