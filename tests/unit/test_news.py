"""News of a run's log: who is told of what, by a worker's socket as it may be."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from durable_supervisor.process.channel import FrameParser, encode_frame, encode_head, head_of
from durable_supervisor.runlog.paths import RunPaths
from durable_supervisor.supervisor.following.news import News
from tests.support import PATIENCE, eventually_async


class Worker:
    """Its socket, with nothing behind it: says what a test has it say."""

    def __init__(self, paths: RunPaths) -> None:
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(paths.socket)
        self._listener.listen()
        self._listener.setblocking(False)
        self._path = paths.socket
        self._parser = FrameParser()
        self._peer: socket.socket | None = None

    async def asked(self) -> list[object]:
        """After which seqs, once it is asked."""
        questions = await eventually_async(self._hear)
        return [question.get("after") for question in questions]

    def say(self, data: bytes) -> None:
        assert self._peer is not None
        self._peer.sendall(data)

    def hang_up(self) -> None:
        if self._peer is not None:
            self._peer.close()
        self._peer = None

    def close(self) -> None:
        self.hang_up()
        self._listener.close()
        if os.path.lexists(self._path):
            os.unlink(self._path)

    def _hear(self) -> list[dict[str, object]]:
        try:
            if self._peer is None:
                self._peer, _ = self._listener.accept()
                self._peer.setblocking(False)
            return [message for message, _ in self._parser.feed(self._peer.recv(4096))]
        except BlockingIOError:
            return []


@pytest.fixture
def paths(tmp_path: Path) -> RunPaths:
    (tmp_path / "0000").mkdir()
    return RunPaths(str(tmp_path), "0000", "run1")


@pytest.fixture
async def worker(paths: RunPaths) -> AsyncIterator[Worker]:
    made = Worker(paths)
    yield made
    made.close()


@pytest.fixture
async def news(paths: RunPaths) -> AsyncIterator[News]:
    made = News(paths)
    yield made
    made.close()
    made.nonblocking.close()


async def told(future: asyncio.Future[int]) -> int:
    return await asyncio.wait_for(future, PATIENCE)


@pytest.mark.parametrize("head", [1, 9, 10, 2**53])
def test_the_short_way_speaks_the_same_language(head: int) -> None:
    frame = encode_frame({"type": "head", "head": head})
    assert encode_head(head) == frame
    assert head_of(frame) == head


@pytest.mark.parametrize(
    "change",
    [
        lambda frame: b"",
        lambda frame: frame[:-1],
        lambda frame: frame[1:],
        lambda frame: frame + frame,
        lambda frame: frame + b"}",
        lambda frame: frame.replace(b"12", b"1x"),
        lambda frame: frame.replace(b"12", b"-1"),
        lambda frame: frame.replace(b"12", b""),
        lambda frame: b"\0" + frame[1:],
        lambda frame: encode_frame({"type": "pong", "head": 12}),
        lambda frame: encode_frame({"type": "head", "head": 12}, b"blob"),
    ],
)
def test_anything_else_is_left_to_the_parser(change: Callable[[bytes], bytes]) -> None:
    assert head_of(change(encode_head(12))) == 0


async def test_each_is_told_of_what_is_news_to_it(news: News, worker: Worker) -> None:
    back = news.after(3, None)
    assert await worker.asked() == [3]
    front = news.after(5, None)
    worker.say(encode_head(4))
    assert await told(back) == 4
    assert await worker.asked() == [5], "who is further on goes on waiting"
    assert not front.done()
    late = news.after(4, None)
    assert await told(late) == 5, "another has read that far"
    worker.say(encode_head(9))
    assert await told(front) == 9


async def test_words_in_pieces_and_several_at_once(news: News, worker: Worker) -> None:
    first = news.after(1, None)
    await worker.asked()
    word = encode_head(2)
    worker.say(word[:5])
    await asyncio.sleep(0)
    worker.say(word[5:])
    assert await told(first) == 2
    second = news.after(2, None)
    await worker.asked()
    worker.say(encode_head(3) + encode_head(4))
    assert await told(second) == 4
    third = news.after(4, None)
    await worker.asked()
    worker.say(encode_head(5))
    assert await told(third) == 5


@pytest.mark.parametrize(
    "nonsense", [b"\xff" * 64, encode_frame({"type": "head"}), encode_frame({"head": "9"})]
)
async def test_who_talks_nonsense_is_hung_up_on(news: News, worker: Worker, nonsense: bytes) -> None:
    waiting = news.after(1, None)
    await worker.asked()
    worker.say(nonsense)
    assert await told(waiting) == 0
    worker.hang_up()
    again = news.after(1, None)
    assert await worker.asked() == [1]
    worker.say(encode_head(2))
    assert await told(again) == 2


async def test_an_end_is_told_at_once_and_a_second_one_after_a_pause(news: News, worker: Worker) -> None:
    """The first may be the run's end.  Who hangs up on everybody is not called again and again."""
    news._pause = 600
    waiting = news.after(1, None)
    await worker.asked()
    worker.hang_up()
    assert await told(waiting) == 0
    waiting = news.after(1, None)
    await worker.asked()
    worker.hang_up()
    await eventually_async(lambda: news._timer is not None)
    assert not waiting.done()


async def test_nobody_listens_yet(news: News, paths: RunPaths) -> None:
    assert await told(news.after(0, None)) == 0
    worker = Worker(paths)
    waiting = news.after(0, None)
    assert await worker.asked() == [0]
    worker.say(encode_head(1))
    assert await told(waiting) == 1
    worker.close()


async def test_who_leaves_is_forgotten(news: News, worker: Worker) -> None:
    gone = news.after(1, None)
    await worker.asked()
    gone.cancel()
    stays = news.after(2, None)
    worker.say(encode_head(2))
    assert await worker.asked() == [2]
    worker.say(encode_head(3))
    assert await told(stays) == 3
    assert not news._waiting
