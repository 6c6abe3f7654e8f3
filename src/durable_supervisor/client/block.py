"""Taking steps in a thread."""

from __future__ import annotations

import select
import time
from collections.abc import Generator
from typing import Final, TypeVar

from .steps import Steps, Wait

T = TypeVar("T")

_LONGEST: Final = (1 << 31) - 1  # milliseconds, 24 days: an int of poll(2); whoever allows more gets that


def drive(steps: Steps[T]) -> T:
    """Take the steps, waiting in between.  Given up half-way, they close what they hold."""
    try:
        wait = next(steps)
        while True:
            wait = steps.send(_ready(wait))
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]
    finally:
        steps.close()


def deliver(steps: Generator[Wait | T, bool, None]) -> Generator[T, None, None]:
    """The same for steps that hand out entries on the way."""
    try:
        step = next(steps)
        while True:
            if isinstance(step, Wait):
                step = steps.send(_ready(step))
            else:
                yield step
                step = next(steps)
    except StopIteration:
        return
    finally:
        steps.close()


def _ready(wait: Wait) -> bool:
    if wait.sock is None:
        time.sleep(wait.seconds or 0)
        return True
    poll = select.poll()
    poll.register(wait.sock, select.POLLOUT if wait.write else select.POLLIN)
    return bool(poll.poll(None if wait.seconds is None else min(wait.seconds * 1000, _LONGEST)))
