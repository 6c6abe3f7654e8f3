"""The clients have the supervisor's methods: names, arguments, defaults and answers."""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import AsyncGenerator, Generator
from typing import Any, get_args, get_origin, get_type_hints

import pytest

import durable_supervisor
from durable_supervisor import AsyncClient, Client, Supervisor
from durable_supervisor.client.attach import Attachment
from durable_supervisor.client.attach_sync import SyncAttachment
from durable_supervisor.client.request import Resend
from durable_supervisor.client.verbs import RESEND
from durable_supervisor.model import answers
from durable_supervisor.supervisor import observer, supervisor
from durable_supervisor.supervisor.controls import attach

# What belongs to whoever owns the directory, or serves it, or may read its files.
OWNERS = {"journal", "open", "recover", "shutdown", "follow_pages", "write_piece", "audit"}
# Of arguments: the facts of the calling process, which a client sends by itself, and its ear.
OWNERS_ARGUMENTS = {"start": {"host"}, "resolve": {"by_uid"}, "import_": {"by_uid"}, "gc": {"tell"}}

SERVED = sorted(
    name for name, member in inspect.getmembers(Supervisor) if not name.startswith("_") and name not in OWNERS
)
CALLED = [name for name in SERVED if inspect.isfunction(getattr(Supervisor, name)) and name != "attach"]
ASKED = {"capacity"}  # what an owner simply knows


def arguments(cls: type, name: str) -> list[tuple[str, Any, Any]]:
    """Names, kinds and defaults, without those that only an owner has."""
    parameters = inspect.signature(getattr(cls, name)).parameters.values()
    left_out = OWNERS_ARGUMENTS.get(name, set())
    return [(one.name, one.kind, one.default) for one in parameters if one.name not in left_out]


def hints(cls: type, name: str) -> dict[str, Any]:
    # Some answers are imported for type checkers alone, by modules that seldom give them.
    public = {one: getattr(durable_supervisor, one) for one in durable_supervisor.__all__}
    theirs = (answers, supervisor, observer, attach)
    scope = public | {name: value for one in theirs for name, value in vars(one).items()}
    scope["Generator"] = Generator
    found = get_type_hints(getattr(cls, name), scope)
    return {key: value for key, value in found.items() if key not in OWNERS_ARGUMENTS.get(name, set())}


@pytest.mark.parametrize("name", SERVED)
def test_what_the_supervisor_serves_the_clients_have(name: str) -> None:
    assert hasattr(AsyncClient, name)
    assert hasattr(Client, name)


@pytest.mark.parametrize("name", CALLED)
def test_signatures(name: str) -> None:
    assert arguments(AsyncClient, name) == arguments(Supervisor, name)
    assert arguments(Client, name) == arguments(Supervisor, name)


@pytest.mark.parametrize("name", [name for name in CALLED if name != "info"])
def test_types(name: str) -> None:
    own = hints(Supervisor, name)
    assert hints(AsyncClient, name) == own
    sync = hints(Client, name)
    if get_origin(own["return"]) is AsyncGenerator:
        own["return"] = Generator[get_args(own["return"])[0], None, None]  # type: ignore[misc]
    assert sync == own


@pytest.mark.parametrize("name", CALLED)
def test_what_is_awaited_is_awaited(name: str) -> None:
    own, face, sync = (getattr(cls, name) for cls in (Supervisor, AsyncClient, Client))
    assert inspect.iscoroutinefunction(face) == (inspect.iscoroutinefunction(own) or name in ASKED)
    assert inspect.isasyncgenfunction(face) == inspect.isasyncgenfunction(own)
    assert inspect.isgeneratorfunction(sync) == inspect.isasyncgenfunction(own)


VIEWING = ("close", "lease", "inspect", "write_stdin", "resize", "stop")


@pytest.mark.parametrize("name", VIEWING)
def test_viewers_are_the_same_wherever_they_are(name: str) -> None:
    own = inspect.signature(getattr(attach.Attachment, name))
    assert inspect.signature(getattr(Attachment, name)) == own
    assert inspect.signature(getattr(SyncAttachment, name)) == own
    assert not inspect.iscoroutinefunction(getattr(SyncAttachment, name))


def test_a_viewer_has_nothing_that_another_has_not() -> None:
    own, face, sync = (
        {name for name in dir(cls) if not name.startswith("_")}
        for cls in (attach.Attachment, Attachment, SyncAttachment)
    )
    assert own >= {*VIEWING, "holds_lease", "lost"}
    assert face == sync == own - {"cursor", "write_piece"}


def test_each_verb_says_what_becomes_of_it() -> None:
    """Whatever the faces have, beside what sends nothing itself."""
    silent = {"close", "connect", "state_dir", "find", "attach"}
    public = {name for name in vars(AsyncClient) if not name.startswith("_")}
    assert public - silent - ASKED <= set(RESEND)
    deeds = {name for name, resend in RESEND.items() if resend is Resend.NEVER}
    assert deeds == {"stop", "signal", "write_stdin", "resize", "resolve", "gc"}
    assert [name for name, resend in RESEND.items() if resend is Resend.PERSIST] == ["start"]


HEAVY = {"aiohttp", "asyncio", "pydantic", "sqlite3", "structlog", "psutil"}


@pytest.mark.parametrize(
    ("module", "absent"),
    [
        ("durable_supervisor.client", {*HEAVY, "h11", "wsproto"}),
        ("durable_supervisor.client.sync", {*HEAVY, "wsproto"}),
        ("durable_supervisor.client.attach_sync", HEAVY),
        ("durable_supervisor.client.aio", (HEAVY - {"asyncio"}) | {"wsproto"}),
    ],
)
def test_it_is_light(module: str, absent: set[str]) -> None:
    code = f"import sys, {module}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not absent & set(done.stdout.split())
