"""Who takes nothing is told from who could not, because all of this process stood still."""

from __future__ import annotations

import asyncio
import time

import pytest

from durable_supervisor.server.sockets.stall import StalledError, unless_stalled

STALL = 0.2  # seconds


class Transport(asyncio.WriteTransport):
    """What waits in it goes piece by piece, each some turns of the loop after it was due, as by a socket."""

    def __init__(self, pieces: int) -> None:
        super().__init__()
        self.loop = asyncio.get_running_loop()
        self.left = pieces
        self.sent = asyncio.Event()
        self.looks = 0

    def get_write_buffer_size(self) -> int:
        self.looks += 1
        return self.left

    def take(self, turns: int = 3) -> None:
        if turns:
            self.loop.call_soon(self.take, turns - 1)
            return
        self.left -= 1
        if self.left:
            self.loop.call_later(0.01, self.take)
        else:
            self.sent.set()


class Frozen(Transport):
    """With each look the whole process begins to stand still."""

    def get_write_buffer_size(self) -> int:
        self.loop.call_soon(time.sleep, STALL * 1.5)  # the standing still is what is tested
        return super().get_write_buffer_size()


async def test_a_reader_waits_out_what_held_up_the_process() -> None:
    transport = Frozen(50)
    transport.take()
    await unless_stalled(transport.sent.wait(), transport, STALL)
    assert transport.looks > 1


async def test_who_takes_nothing_is_told() -> None:
    transport = Transport(5)
    with pytest.raises(StalledError):
        await unless_stalled(transport.sent.wait(), transport, STALL)
    transport.sent.set()
