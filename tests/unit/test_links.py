"""A worker that is free leaves its channel to the next run, but for one on which half a frame may be."""

from __future__ import annotations

import asyncio
import os
import select
import socket
from collections.abc import AsyncIterator

import pytest

from durable_supervisor.process import forks
from durable_supervisor.process.channel import encode_frame
from durable_supervisor.supervisor.workers.channel import Assignment, Channel
from durable_supervisor.supervisor.workers.links import Word, WorkerLink
from durable_supervisor.supervisor.workers.spare import KeptWorker
from tests.support import PATIENCE, eventually_async
from tests.unit.test_slots import run_row

RUN = "run_1"
_FREE: dict[str, object] = {"type": "free", "pid": os.getpid(), "run": RUN}


class Ends:
    """Our link and the worker's end of its channel."""

    def __init__(self, ours: socket.socket, theirs: socket.socket) -> None:
        self.theirs = theirs
        self.words: list[Word] = []
        self.worker = KeptWorker(0.0, KeptWorker.close)
        assignment = Assignment(Channel(ours), memoryview(b""), self.worker)
        self.link = WorkerLink(run_row(RUN, "running"), assignment, lambda _, word: self.words.append(word))


@pytest.fixture
async def ends() -> AsyncIterator[Ends]:
    pair = forks.socketpair(socket.SOCK_STREAM)
    made = Ends(*pair)
    await made.link.hand_over(1)
    yield made
    made.link.close()
    made.worker.close()
    for end in pair:
        forks.close_socket(end)


def hung_up(end: socket.socket) -> bool:
    """Has the other end been closed?  Reads what was said before."""
    end.settimeout(0)
    try:
        while end.recv(1 << 16):
            pass
    except BlockingIOError:
        return False
    return True


async def test_the_channel_of_a_free_worker_stays(ends: Ends) -> None:
    ends.theirs.send(encode_frame({"type": "finished"}) + encode_frame(_FREE))
    await eventually_async(lambda: ends.link.closed)
    assert ends.words == [Word.FINISHED, Word.ENDED]
    assert ends.worker.free
    assert not hung_up(ends.theirs)
    ends.link.close()
    assert not hung_up(ends.theirs)
    ends.theirs.shutdown(socket.SHUT_WR)
    await eventually_async(lambda: not ends.worker.free)
    assert hung_up(ends.theirs)


@pytest.mark.parametrize(
    "last",
    [
        encode_frame({**_FREE, "run": "run_2"}),
        encode_frame({"type": "free", "pid": os.getpid()}),
        encode_frame({**_FREE, "pid": None}),
        encode_frame(_FREE) + encode_frame({"type": "released"}),
        encode_frame(_FREE) + encode_frame({"type": "released"})[:9],
    ],
    ids=["of another run", "of no run", "of nobody", "and a frame more", "and half a frame more"],
)
async def test_there_is_no_more_use_of_one_whose_last_word_is_not_its_last(ends: Ends, last: bytes) -> None:
    ends.theirs.send(last)
    await eventually_async(lambda: ends.link.closed)
    assert not ends.worker.free
    assert hung_up(ends.theirs)
    assert ends.words == [Word.CLOSED]


async def test_nor_of_one_that_has_half_a_control_of_ours(ends: Ends) -> None:
    asking = asyncio.ensure_future(ends.link.ask({"op": "stdin", "id": "one"}, bytes(1 << 23)))
    await eventually_async(lambda: select.select([ends.theirs], [], [], 0)[0])
    ends.theirs.send(encode_frame(_FREE))
    assert await asking is None
    assert not ends.worker.free
    assert hung_up(ends.theirs)


@pytest.mark.parametrize("length", [1, 1 << 20])
async def test_nothing_of_a_spec_is_kept_once_it_is_sent(length: int) -> None:
    """It has the environment and the stdin of its run, which may last."""
    frame = bytearray(length)
    ours, theirs = forks.socketpair(socket.SOCK_STREAM)
    link: WorkerLink | None = None
    try:
        ours.setblocking(False)
        assignment = Assignment(Channel(ours), memoryview(frame)[ours.send(frame) :], None)
        link = WorkerLink(run_row(RUN, "running"), assignment, lambda *_: None)
        del assignment
        reading = asyncio.create_task(asyncio.to_thread(theirs.recv, length, socket.MSG_WAITALL))
        await link.hand_over(PATIENCE)
        assert len(await reading) == length
        frame.clear()  # BufferError while anybody has a view of it
    finally:
        if link is not None:
            link.close()
        forks.close_socket(ours)
        forks.close_socket(theirs)
