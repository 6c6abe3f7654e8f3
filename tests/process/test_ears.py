"""Many channels, one reader in the loop."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator

import pytest

from durable_supervisor.supervisor.ears import Ears
from tests.support import eventually_async

Pipe = tuple[int, int]


@pytest.fixture
def pipes() -> Iterator[list[Pipe]]:
    made = [os.pipe() for _ in range(3)]
    yield made
    for fd in (fd for pipe in made for fd in pipe):
        os.close(fd)


async def test_who_can_be_read_is_called_until_it_is(pipes: list[Pipe]) -> None:
    ears = Ears()
    told = [0, 0, 0]
    read = bytearray()

    def hear(number: int) -> None:
        told[number] += 1
        if told[number] > 1:  # not at once: it is called again
            read.extend(os.read(pipes[number][0], 1))

    for number, (fd, _) in enumerate(pipes):
        ears.add(fd, lambda number=number: hear(number))  # type: ignore[misc]
    os.write(pipes[0][1], b"a")
    os.write(pipes[2][1], b"c")
    await eventually_async(lambda: sorted(read) == [ord("a"), ord("c")])
    assert told[1] == 0
    ears.close()
    ears.close()


async def test_who_was_removed_is_called_no_more(pipes: list[Pipe]) -> None:
    ears = Ears()
    told: list[int] = []

    def hear(fd: int) -> None:
        """Whoever comes first takes all away, while the others are just about to be called."""
        told.append(fd)
        for other, _ in pipes:
            ears.remove(other)

    for fd, writer in pipes:
        ears.add(fd, lambda fd=fd: hear(fd))  # type: ignore[misc]
        os.write(writer, b"x")
    await eventually_async(lambda: told)
    for fd, _ in pipes:
        ears.remove(fd)
    ears.add(pipes[1][0], told.clear)
    await eventually_async(lambda: not told)
    ears.close()


async def test_one_that_fails_takes_no_other_with_it(pipes: list[Pipe]) -> None:
    loop, ears = asyncio.get_running_loop(), Ears()
    failed: list[object] = []
    loop.set_exception_handler(lambda _, context: failed.append(context["exception"]))
    heard: list[int] = []

    def fail(fd: int) -> None:
        ears.remove(fd)
        raise RuntimeError(f"{fd}")

    def hear(fd: int) -> None:
        ears.remove(fd)
        heard.append(fd)

    for (fd, writer), call in zip(pipes, (fail, hear, fail), strict=True):
        ears.add(fd, lambda fd=fd, call=call: call(fd))  # type: ignore[misc]
        os.write(writer, b"x")
    await eventually_async(lambda: len(failed) == 2 and heard == [pipes[1][0]])
    ears.close()
