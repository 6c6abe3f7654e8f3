"""Both faces behind one word each, so that one suite serves both: the blocking one works in threads."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

from durable_supervisor import AsyncClient, Client
from tests.client.raw import RawService

_END = object()


class AsyncFace:
    """`AsyncClient`, as it is."""

    def __init__(self, client: AsyncClient) -> None:
        self.client = client

    @classmethod
    async def connect(cls, *args: Any, **options: Any) -> AsyncFace:
        return cls(await AsyncClient.connect(*args, **options))

    async def call(self, verb: str, *args: Any, **options: Any) -> Any:
        return await getattr(self.client, verb)(*args, **options)

    def stream(self, verb: str, *args: Any, **options: Any) -> AsyncIterator[Any]:
        found: AsyncIterator[Any] = getattr(self.client, verb)(*args, **options)
        return found

    async def close(self) -> None:
        await self.client.close()


class SyncFace:
    """`Client`, each call in a thread of its own."""

    def __init__(self, client: Client) -> None:
        self.client = client

    @classmethod
    async def connect(cls, *args: Any, **options: Any) -> SyncFace:
        return cls(await in_thread(lambda: Client.connect(*args, **options)))

    async def call(self, verb: str, *args: Any, **options: Any) -> Any:
        return await in_thread(lambda: getattr(self.client, verb)(*args, **options))

    async def stream(self, verb: str, *args: Any, **options: Any) -> AsyncIterator[Any]:
        items: Iterator[Any] = getattr(self.client, verb)(*args, **options)
        while (item := await in_thread(lambda: next(items, _END))) is not _END:
            yield item

    async def close(self) -> None:
        self.client.close()


Face = AsyncFace | SyncFace
Kind = type[AsyncFace] | type[SyncFace]
FACES: dict[str, type[AsyncFace] | type[SyncFace]] = {"async": AsyncFace, "sync": SyncFace}


def in_thread(work: Callable[[], Any]) -> Awaitable[Any]:
    """In a thread that nothing waits for at the end, unlike those of the loop's executor."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Any] = loop.create_future()

    def settle(set_it: Callable[[Any], None], value: Any) -> None:
        if not done.done():
            set_it(value)

    def run() -> None:
        try:
            result = work()
        except BaseException as error:
            loop.call_soon_threadsafe(settle, done.set_exception, error)
        else:
            loop.call_soon_threadsafe(settle, done.set_result, result)

    threading.Thread(target=run, daemon=True).start()
    return done


async def first_call_to(kind: Kind, service: RawService, **options: Any) -> Face:
    """A client whose kept connection is given up, so that the next call makes visit 1."""
    face = await kind.connect(service.state_dir, **options)
    face.client._connections._idle.pop()[0].close()
    return face
