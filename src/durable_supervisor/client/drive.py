"""Taking steps in an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Generator
from typing import TypeVar

from .steps import Steps, Wait

T = TypeVar("T")


async def drive(steps: Steps[T]) -> T:
    """Take the steps, waiting in between.  Given up half-way, they close what they hold."""
    try:
        wait = next(steps)
        while True:
            wait = steps.send(await _ready(wait))
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]
    finally:
        steps.close()


async def deliver(steps: Generator[Wait | T, bool, None]) -> AsyncGenerator[T, None]:
    """The same for steps that hand out entries on the way."""
    try:
        step = next(steps)
        while True:
            if isinstance(step, Wait):
                step = steps.send(await _ready(step))
            else:
                yield step
                step = next(steps)
    except StopIteration:
        return
    finally:
        steps.close()


async def _ready(wait: Wait) -> bool:
    if wait.sock is None:
        await asyncio.sleep(wait.seconds or 0)
        return True
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    fd = wait.sock.fileno()
    watch, leave = loop.add_reader, loop.remove_reader
    if wait.write:
        watch, leave = loop.add_writer, loop.remove_writer
    watch(fd, ready.set)
    try:
        async with asyncio.timeout(wait.seconds):
            await ready.wait()
    except TimeoutError:
        return False
    finally:
        leave(fd)
    return True
