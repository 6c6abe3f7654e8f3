"""Large events are the same over every interface: 64 KiB of whatever programs print, and a MiB of detail."""

from __future__ import annotations

import base64
import random
import sys
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import durable_supervisor
from durable_supervisor import AsyncClient, Observer
from durable_supervisor.bundle.reader import BundleReader
from durable_supervisor.model.events import Event, Kind
from durable_supervisor.wire.documents import validate
from tests.attach.sockets import Service as Sockets
from tests.cli.helpers import Cli
from tests.client.faces import SyncFace
from tests.faces.face import Blocking
from tests.server.http import Http, following
from tests.service.daemons import Service
from tests.support import reap_state_dir

Form = dict[str, Any]
BLOCK = 64 * 1024
# Written in blocks of what a pipe holds, and often enough that the worker reads more than that at once.
COPY = """
import os, sys
for number, name in ((1, sys.argv[1]), (2, sys.argv[2])):
    with open(name, "rb") as file:
        while block := file.read(65536):
            while block:
                block = block[os.write(number, block):]
"""
EDGES = "\ufeff\u2028\u2029\x85\ufffd\uffff\U0001f600"
WORDS = b'"\\ \\n {"text":"\\u0000"}\r\n\r\nid: 9\r\nevent: end\ndata: {}\n\n\x1b]0;title\x07\x1b[2J\x7f\x00'


def block_of(pattern: bytes, shift: int = 0) -> bytes:
    """``shift`` bytes more before it move what the end of the block cuts in two."""
    return (b"." * shift + pattern * (BLOCK // len(pattern) + 1))[:BLOCK]


STDOUT = 4 * b"".join(
    [
        block_of(b"x" * 79 + b"\n"),
        block_of("é".encode(), 1),
        block_of("😀".encode(), 2),
        block_of(bytes(range(256))),
        block_of(WORDS),
        block_of(b"y" * 200 + WORDS),
        block_of(EDGES.encode()),
        block_of(b"\xed\xa0\x80\xc0\xaf\xf5", 1),
        random.Random(1).randbytes(BLOCK),
        bytes(BLOCK),
    ]
)
STDERR = block_of("ß".encode(), 1) + block_of(b"\xff") + STDOUT[: 10 * BLOCK]
# A MiB of argv, which an event tells, with bytes that are no text in it.
WIDE = [b"%d " % number + block_of(b'quoted "\\\n\x1b[m \xff\xfe ' + EDGES.encode()) for number in range(16)]


@dataclass(frozen=True)
class Large:
    """The run, where it lies and who serves it; ``theirs`` is the directory that has its bundle imported."""

    cli: Cli
    run: str
    socket: str
    bundle: str
    theirs: Cli
    forms: list[Form]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    path = tmp_path_factory.mktemp("large")
    for name in ("state", "theirs"):
        (path / name).mkdir(mode=0o700)
    yield path
    for name in ("state", "theirs"):
        reap_state_dir(path / name)


@pytest.fixture(scope="module")
def large(folder: Path) -> Iterator[Large]:
    cli, theirs = Cli(folder / "state"), Cli(folder / "theirs")
    names = [str(folder / "stdout"), str(folder / "stderr")]
    for name, data in zip(names, (STDOUT, STDERR), strict=True):
        Path(name).write_bytes(data)
    program = [sys.executable, "-I", "-S", "-c", COPY, *names]
    run = str(cli.ok("start", "--json", "--", *program, *WIDE).document["run_id"])
    cli.ok("wait", run)
    cli.ok("reconcile", "--json")
    bundle = str(folder / "run.zip")
    cli.ok("export", run, "-o", bundle)
    theirs.ok("import", bundle)
    with Service(cli.state_dir) as service:
        forms = cli.ok("events", run, "--json").documents
        yield Large(cli, run, service.socket, bundle, theirs, forms)


def written(forms: list[Form], stream: str) -> bytes:
    return b"".join(data_of(form) for form in forms if form.get("stream") == stream)


def data_of(form: Form) -> bytes:
    """By the words of docs/events.md, without the product's own reader."""
    return base64.b64decode(form["base64"]) if "base64" in form else form["text"].encode()


def test_all_of_it_is_there(large: Large) -> None:
    assert written(large.forms, "stdout") == STDOUT
    assert written(large.forms, "stderr") == STDERR
    for form in large.forms:
        validate("event", form)
    [dispatched] = [form for form in large.forms if form["kind"] == Kind.RUN_DISPATCHED]
    assert [word.encode("utf-8", "surrogateescape") for word in dispatched["detail"]["argv"][7:]] == WIDE
    sizes = [len(data_of(form)) for form in large.forms if form["kind"] == Kind.OUTPUT]
    assert BLOCK <= max(sizes) < 2 * BLOCK
    assert [form["seq"] for form in large.forms] == [*range(1, len(large.forms) + 1)]


async def pages(read: Any, run: str, limit: int = 1000) -> list[Form]:
    """All there are, paged."""
    found: list[Event] = []
    while True:
        page = await read.events(run, after=found[-1].seq if found else 0, limit=limit)
        found += page.events
        if page.end:
            return [event.to_dict() for event in found]


async def follow(read: Any, run: str) -> list[Form]:
    return [event.to_dict() async for event in read.follow(run)]


async def embedded(large: Large) -> list[list[Form]]:
    async with Observer.open(large.cli.state_dir) as read:
        return [await pages(read, large.run), await pages(read, large.run, 3), await follow(read, large.run)]


async def guest(large: Large) -> list[list[Form]]:
    async with durable_supervisor.open(large.cli.state_dir) as read:
        assert read.role == "client"
        return [await pages(read, large.run), await follow(read, large.run)]


async def client(large: Large) -> list[list[Form]]:
    async with AsyncClient.connect(large.cli.state_dir) as read:
        return [await pages(read, large.run), await pages(read, large.run, 3), await follow(read, large.run)]


async def blocking_client(large: Large) -> list[list[Form]]:
    face = await SyncFace.connect(large.cli.state_dir)
    try:
        return [await pages(Blocking(face), large.run), await follow(Blocking(face), large.run)]
    finally:
        await face.close()


async def http(large: Large) -> list[list[Form]]:
    found: list[Form] = []
    while True:
        after = found[-1]["seq"] if found else 0
        page = (await Http(large.socket).get(f"/v1/runs/{large.run}/events?limit=1000&after={after}")).json()
        validate("page", page)
        found += page["events"]
        if page["end"]:
            return [found]


async def server_sent(large: Large) -> list[list[Form]]:
    async with following(large.socket, f"/v1/runs/{large.run}/follow") as events:
        *messages, end = await events.all()
    assert end.event == "end"
    assert [(one.id, one.event) for one in messages] == [
        (one.data["seq"], one.data["kind"]) for one in messages
    ]
    return [[message.data for message in messages]]


async def websocket(large: Large) -> list[list[Form]]:
    async with Sockets(large.socket).viewer(large.run, writer="none") as viewer:
        assert (await viewer.rest())[-1]["type"] == "end"
    return [viewer.events]


async def command_line(large: Large) -> list[list[Form]]:
    verbs = (["events"], ["events", "--follow"], ["attach"], ["replay", "--speed", "1000"])
    places: tuple[list[str], ...] = ([], ["--socket", large.socket])
    return [large.cli.ok(*verb, large.run, "--json", *place).documents for verb in verbs for place in places]


async def bundle(large: Large) -> list[list[Form]]:
    async with BundleReader(large.bundle) as read:
        found = [await pages(read, large.run), await follow(read, large.run)]
    verbs = (["events"], ["replay", "--speed", "1000"])
    return [*found, *(large.cli.ok(*verb, large.bundle, "--json").documents for verb in verbs)]


async def imported(large: Large) -> list[list[Form]]:
    async with Observer.open(large.theirs.state_dir) as read:
        found = await pages(read, large.run)
    return [found, large.theirs.ok("events", large.run, "--json").documents]


Way = Callable[[Large], Awaitable[list[list[Form]]]]
WAYS: tuple[Way, ...] = (
    embedded, guest, client, blocking_client, http, server_sent, websocket, command_line, bundle, imported,
)  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
async def test_it_is_the_same(large: Large, way: Way) -> None:
    for number, forms in enumerate(await way(large)):
        assert [form["seq"] for form in forms] == [form["seq"] for form in large.forms], number
        different = [form["seq"] for form, one in zip(forms, large.forms, strict=True) if form != one]
        assert different == [], number


@pytest.mark.parametrize("place", ["state", "socket", "bundle", "imported"])
def test_the_bytes_themselves(large: Large, place: str) -> None:
    run = large.bundle if place == "bundle" else large.run
    cli = large.theirs if place == "imported" else large.cli
    where = ["--socket", large.socket] if place == "socket" else []
    for stream, data in (("stdout", STDOUT), ("stderr", STDERR)):
        assert cli.ok("logs", run, "--stream", stream, "--raw", *where).raw == data
        told = cli.ok("logs", run, "--stream", stream, "--json", *where).documents
        assert told == [form for form in large.forms if form.get("stream") == stream]
