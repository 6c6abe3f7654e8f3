"""A small HTTP client of the tests' own, so that no client of the product hides what is on the wire."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h11

from tests.support import PATIENCE

JSON = "application/json"
_CHUNK = 64 * 1024


@dataclass(frozen=True)
class Answer:
    """What came back."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        """Of an error document."""
        return str(self.json()["error"]["code"])

    @property
    def field(self) -> Any:
        return self.json()["error"]["details"].get("field")


async def dial(path: str | Path) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect, however long the path is."""
    directory = os.open(os.path.dirname(path), os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        return await asyncio.open_unix_connection(f"/proc/self/fd/{directory}/{os.path.basename(path)}")
    finally:
        os.close(directory)


class Wire:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self._http = h11.Connection(h11.CLIENT)

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def request(
        self, method: str, target: str, body: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> None:
        """Send one request."""
        given = {"Host": "x", **(headers or {})}
        if body or method == "POST":
            given.setdefault("Content-Length", str(len(body)))
        head = h11.Request(method=method, target=target, headers=list(given.items()))
        await self.send(
            (self._http.send(head) or b"")
            + (self._http.send(h11.Data(data=body)) or b"")
            + (self._http.send(h11.EndOfMessage()) or b"")
        )

    async def event(self) -> Any:
        """The next h11 event of the answer."""
        while True:
            event = self._http.next_event()
            if event is not h11.NEED_DATA:
                return event
            self._http.receive_data(await self.reader.read(_CHUNK))

    async def answer(self) -> Answer:
        """The whole answer."""
        head = await self.event()
        assert isinstance(head, h11.Response), head
        body = b""
        while isinstance(event := await self.event(), h11.Data):
            body += event.data
        headers = {name.decode().lower(): value.decode() for name, value in head.headers}
        if self._http.our_state is h11.DONE and self._http.their_state is h11.DONE:
            self._http.start_next_cycle()
        return Answer(head.status_code, headers, body)

    def close(self) -> None:
        self.writer.close()


@asynccontextmanager
async def connected(path: str | Path) -> AsyncIterator[Wire]:
    wire = Wire(*await dial(path))
    try:
        yield wire
    finally:
        wire.close()


class Http:
    """Requests to one socket, each on a connection of its own."""

    def __init__(self, path: str | Path) -> None:
        self.path = path

    async def ask(
        self, method: str, target: str, body: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> Answer:
        async with connected(self.path) as wire:
            await wire.request(method, target, body, headers)
            return await wire.answer()

    async def get(self, target: str, **headers: str) -> Answer:
        return await self.ask(
            "GET", target, headers={name.replace("_", "-"): v for name, v in headers.items()}
        )

    async def post(self, target: str, form: object = None, body: bytes | None = None) -> Answer:
        data = body if body is not None else json.dumps({} if form is None else form).encode()
        return await self.ask("POST", target, data, {"Content-Type": JSON})

    async def start(self, *argv: str, **fields: Any) -> str:
        """Start a program; its run id."""
        answer = await self.post("/v1/start", {"command": {"argv": list(argv)}, **fields})
        assert answer.status in (200, 201), answer
        return str(answer.json()["run_id"])

    async def wait(self, run_id: str) -> Any:
        answer = await self.get(f"/v1/runs/{run_id}/wait?timeout=60")
        assert answer.status == 200, answer
        return answer.json()


@dataclass
class Message:
    """One server-sent event."""

    event: str
    id: int | None
    data: Any


class Events:
    """An open stream of server-sent events."""

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self.comments = 0
        self._text = b""

    async def next(self) -> Message | None:
        """The next message; None at the stream's end."""
        while True:
            while b"\n\n" not in self._text:
                event = await self.wire.event()
                if not isinstance(event, h11.Data):
                    return None
                self._text += event.data
            block, _, self._text = self._text.partition(b"\n\n")
            if block.startswith(b":"):
                self.comments += 1
                continue
            fields = dict(line.split(": ", 1) for line in block.decode().split("\n"))
            number = int(fields["id"]) if "id" in fields else None
            return Message(fields["event"], number, json.loads(fields["data"]))

    async def skip_to(self, seq: int) -> None:
        """Read on to this message without looking at those before it, which takes a test long."""
        mark = b"id: %d\n" % seq
        while mark not in self._text:
            event = await self.wire.event()
            assert isinstance(event, h11.Data), event
            self._text = self._text[-_CHUNK:] + event.data
        self._text = self._text[self._text.index(mark) :]

    async def all(self) -> list[Message]:
        found = []
        while (message := await self.next()) is not None:
            found.append(message)
        return found


@asynccontextmanager
async def following(path: str | Path, target: str, **headers: str) -> AsyncIterator[Events]:
    async with connected(path) as wire:
        await wire.request("GET", target, headers={name.replace("_", "-"): v for name, v in headers.items()})
        head = await wire.event()
        assert isinstance(head, h11.Response), head
        assert head.status_code == 200, head
        yield Events(wire)


def raw(path: str | Path, timeout: float = PATIENCE) -> socket.socket:
    """A plain blocking connection."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(timeout)
    directory = os.open(os.path.dirname(path), os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        connection.connect(f"/proc/self/fd/{directory}/{os.path.basename(path)}")
    finally:
        os.close(directory)
    return connection
