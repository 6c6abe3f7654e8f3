"""One verb, one name, one signature: whoever answers."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from durable_supervisor import AsyncClient, Client, Observer, Session, Supervisor
from durable_supervisor.api.verbs import Reading, Verbs

READING = ("inspect", "list", "find", "events", "follow", "attach", "feed", "wait")
CONTROLS = ("stop", "signal", "write_stdin", "resize")
OWNING = ("start", "resolve", "reconcile", "gc", "import_", "capabilities")


def shape(cls: type, verb: str, *, ignore: frozenset[str] = frozenset()) -> list[tuple[str, Any, Any]]:
    """Names, kinds and defaults of the arguments."""
    parameters = inspect.signature(getattr(cls, verb)).parameters.values()
    return [(one.name, one.kind, one.default) for one in parameters if one.name not in ignore]


@pytest.mark.parametrize("cls", [AsyncClient, Client, Session])
@pytest.mark.parametrize("verb", [*READING, *CONTROLS, *OWNING, "capacity"])
def test_every_face_takes_the_same_arguments(cls: type, verb: str) -> None:
    # `host` and `by_uid` stand for another process, which only a service speaks for; `tell` is for ours.
    assert shape(cls, verb) == shape(Supervisor, verb, ignore=frozenset({"host", "by_uid", "tell"}))


@pytest.mark.parametrize("cls", [AsyncClient, Session, Supervisor])
@pytest.mark.parametrize("verb", [*READING, *CONTROLS, *OWNING])
def test_what_is_awaited_is_awaited_everywhere(cls: type, verb: str) -> None:
    one, other = getattr(cls, verb), getattr(Supervisor, verb)
    assert inspect.iscoroutinefunction(one) == inspect.iscoroutinefunction(other)
    assert inspect.isasyncgenfunction(one) == inspect.isasyncgenfunction(other)


def test_what_anybody_asks_is_in_the_protocol() -> None:
    """And the type checker holds each of them against it."""
    verbs: list[type[Verbs]] = [AsyncClient, Session, Supervisor]
    reading: list[type[Reading]] = [Observer, *verbs]
    for cls in reading:
        assert not [name for name in vars(Reading) if not name.startswith("_") and not hasattr(cls, name)]
    for cls in verbs:
        assert not [name for name in vars(Verbs) if not name.startswith("_") and not hasattr(cls, name)]
