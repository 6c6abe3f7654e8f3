"""A service made by hand on a real socket, whose every byte the test chooses."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from durable_supervisor.process.places import SOCKET_NAME

RUN = "0123456789abcdef"


@dataclass
class Visit:
    """One connection after its greeting.  ``number`` counts such connections from 0."""

    number: int
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def request(self) -> bytes:
        """One whole request."""
        head = await self.reader.readuntil(b"\r\n\r\n")
        found = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
        return head + (await self.reader.readexactly(int(found[1])) if found else b"")

    async def say(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()


Behaviour = Callable[[Visit], Awaitable[None]]


@dataclass
class RawService:
    """It greets properly, and then ``behave`` does what it likes with the connection, until it returns."""

    state_dir: Path
    behave: Behaviour
    api_versions: list[int] = field(default_factory=lambda: [1])
    directory_id: str = "dir-0000000000000000"
    max_body_bytes: int = 1024 * 1024
    greetings: int = 0

    def info(self) -> dict[str, Any]:
        return {
            "schema": "durable-supervisor/info/1",
            "product": "durable-supervisor",
            "version": "9.9.9",
            "api_versions": self.api_versions,
            "phase": "accepting",
            "pid": 1,
            "state_dir": str(self.state_dir),
            "directory_id": self.directory_id,
            "started_at": "2026-01-02T03:04:05.000006Z",
            "caller": {"principal": "operator", "owner": "local", "namespace": "default"},
            "limits": {"max_body_bytes": self.max_body_bytes},
            "runs": {"held": 0, "queued": 0},
        }

    @asynccontextmanager
    async def listening(self, path: Path | None = None) -> AsyncIterator[RawService]:
        where = path or self.state_dir / SOCKET_NAME
        server = await asyncio.start_unix_server(self._serve, where, backlog=100)
        try:
            yield self
        finally:
            server.close()
            where.unlink(missing_ok=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        visit = Visit(self.greetings, reader, writer)
        try:
            head = await visit.request()
            assert head.startswith(b"GET /v1/info HTTP/1.1\r\n"), head
            self.greetings += 1
            await visit.say(answer(self.info()))
            await self.behave(visit)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


def answer(form: dict[str, Any], status: int = 200) -> bytes:
    """A whole HTTP answer."""
    body = json.dumps(form).encode()
    head = f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def error(code: str, **details: Any) -> dict[str, Any]:
    """An error document."""
    return {
        "error": {
            "code": code,
            "message": "it says no",
            "phase": "run",
            "retryable": False,
            "hint": "think again",
            "details": details,
        }
    }


STREAM_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def event(seq: int) -> bytes:
    """A message of a run's stream."""
    form = {
        "seq": seq,
        "time": "2026-01-02T03:04:05.000006Z",
        "elapsed": 0.5,
        "kind": "output",
        "stream": "stdout",
        "offset": seq,
        "text": f"{seq}\n",
    }
    return f"id: {seq}\nevent: output\ndata: {json.dumps(form)}\n\n".encode()


END = b'event: end\ndata: {"run_id": "%s", "state": "finished"}\n\n' % RUN.encode()

STOPPED = {
    "schema": "durable-supervisor/stop/1",
    "run_id": RUN,
    "state": "finished",
    "control_id": "ctl-0123456789abcdef",
    "result": "stopping",
    "confirmed": True,
    "outcome": None,
}
CONTROLLED = {
    "schema": "durable-supervisor/control/1",
    "run_id": RUN,
    "control_id": "ctl-0123456789abcdef",
    "op": "stdin",
    "result": "written",
    "seq": 7,
    "bytes": 3,
}
STARTED = {
    "schema": "durable-supervisor/start/1",
    "run_id": RUN,
    "state": "running",
    "request_id": "chosen",
    "attempt": 1,
    "admission": "new",
    "nested_in": None,
    "survives_unit_restart": None,
}
FEED = {"schema": "durable-supervisor/feed-page/1", "entries": [], "next_after": 0}


async def nothing(visit: Visit) -> None:
    """Close at once."""


def says(*words: bytes) -> Behaviour:
    """Takes a request and answers with these bytes, then ends the connection."""

    async def behave(visit: Visit) -> None:
        await visit.request()
        for word in words:
            await visit.say(word)

    return behave


def in_turn(*behaviours: Behaviour) -> Behaviour:
    """One for each connection; the last one for all that follow."""

    async def behave(visit: Visit) -> None:
        await behaviours[min(visit.number, len(behaviours) - 1)](visit)

    return behave
