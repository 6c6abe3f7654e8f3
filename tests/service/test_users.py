"""One service for users with real uids, none of them its own: neither finds a trace of the other."""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from durable_supervisor import AsyncClient, Kind, RunState
from tests.contract.hosts import HostScript
from tests.service.daemons import Service
from tests.service.users import KNOCK, TRY_EVERYTHING, as_user
from tests.support import PATIENCE, reap_state_dir

SERVICE, ALICE, BOB, STRANGER, GROUP = 65534, 65533, 65532, 65531, 65530
NOBODYS = "0123456789abcdef"

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be several users")


@pytest.fixture
def exchange() -> Iterator[Path]:
    """A directory like /tmp, within reach of every user."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        os.chmod(name, 0o1777)
        yield Path(name)


@pytest.fixture
def shared(exchange: Path) -> Iterator[Service]:
    """A service of an ordinary user, for members of a group; two of them are its callers."""
    folders = [exchange / "state", exchange / "way-in"]
    for folder, mode in zip(folders, (0o700, 0o755), strict=True):
        folder.mkdir()
        folder.chmod(mode)
        os.chown(folder, SERVICE, SERVICE)
    state, way_in = folders
    options = ["--socket", str(way_in / "s.sock"), "--socket-group", str(GROUP), "--socket-mode", "0660"]
    for uid, owner in ((ALICE, "alice"), (BOB, "bob")):
        options += ["--caller", f"{uid}:ci:{owner}:default"]
    service = Service(state, *options, prefix=tuple(as_user(SERVICE, GROUP)), leave=())
    try:
        yield service.ready()
    finally:
        service.kill()
        reap_state_dir(state)


class User(HostScript):
    """A client of the service with this uid."""

    def __init__(self, code: str, service: Service, uid: int, *names: str, groups: tuple[int, ...]) -> None:
        super().__init__(
            code,
            service.state_dir,
            service.state_dir.parent,
            prefix=as_user(uid, *groups),
            arguments=(service.socket, *(names or ("", "")), NOBODYS),
            cwd="/",
        )


@pytest.fixture
def told(shared: Service) -> Iterator[dict[str, dict[str, Any]]]:
    """What each of the two found, when both tried everything on the other at once."""
    names = {"alice": (ALICE, "bob"), "bob": (BOB, "alice")}
    with ExitStack() as ending:
        both = {
            name: ending.enter_context(User(TRY_EVERYTHING, shared, uid, name, other, groups=(GROUP,)))
            for name, (uid, other) in names.items()
        }
        yield {name: user.finish(60) for name, user in both.items()}


async def test_neither_finds_a_trace_of_the_other(shared: Service, told: dict[str, dict[str, Any]]) -> None:
    runs = {name: facts["run"] for name, facts in told.items()}
    assert len(set(runs.values())) == 2, "the same request id is another request for another owner"
    for name, other in (("alice", "bob"), ("bob", "alice")):
        facts = told[name]
        assert facts["again"] == runs[name]
        assert facts["caller"] == {"principal": "ci", "owner": name, "namespace": "default"}
        assert facts["runs"] == {"held": None, "queued": None}
        check_the_same(facts["same"])
        assert facts["listed"] == facts["feed"] == [runs[name]]
        assert facts["labelled"] == []
        assert {verb: error["code"] for verb, error in facts["claims"].items()} == dict.fromkeys(
            facts["claims"], "OWNER_MISMATCH"
        )
        assert facts["operators"] == dict.fromkeys(("reconcile", "capacity", "gc", "import_"), "PEER_DENIED")
        assert runs[other] not in json.dumps([facts["claims"], facts["listed"], facts["feed"]])
    await check_the_operators_view(shared, runs)


def check_the_same(found: dict[str, list[Any]]) -> None:
    """To the byte: nothing tells the other's run from one that there is not."""
    assert len(found) == 3 * (12 + 11)
    for words, (verdict, same) in found.items():
        assert same, words
        assert verdict in ("UNKNOWN_RUN", "404"), words


async def check_the_operators_view(service: Service, runs: dict[str, str]) -> None:
    """It sees both, and that nobody has touched anybody's."""
    async with AsyncClient.connect(socket=service.socket) as operator:  # root
        seen = {view.id: view for view in (await operator.list()).runs}
        assert {run: view.owner for run, view in seen.items()} == {run: name for name, run in runs.items()}
        assert {entry.run_id for entry in await operator.feed()} == set(runs.values())
        for name, run in runs.items():
            assert (await operator.inspect(run)).state is RunState.RUNNING
            assert [view.id for view in (await operator.list(owner=name)).runs] == [run]
            await operator.write_stdin(run, b"bye\n", eof=True)
            assert (await operator.wait(run, timeout=PATIENCE)).outcome is not None
            events = [event async for event in operator.follow(run)]
            assert b"".join(event.data for event in events) == b"word of %s\nbye\n" % name.encode()
            asked = [event.detail["op"] for event in events if event.kind == Kind.CONTROL_RECEIVED]
            assert asked == ["stdin", "close_stdin"], "no control of the other has reached it"
    status, metrics = await asyncio.to_thread(service.ask, "GET", "/metrics")
    assert status == 200
    assert not any(word in metrics for word in ("alice", "bob", *runs.values()))


def test_who_is_no_caller_learns_nothing(shared: Service) -> None:
    """A member of the group is told so; who is none cannot even connect."""
    with ExitStack() as ending:
        knocking = [
            ending.enter_context(User(KNOCK, shared, STRANGER, groups=groups)) for groups in ((GROUP,), ())
        ]
        inside, outside = (user.finish(60)["error"] for user in knocking)
    assert (inside["code"], inside["details"]) == ("PEER_DENIED", {"uid": STRANGER})
    assert (outside["code"], outside["retryable"]) == ("PEER_DENIED", False)
    assert str(shared.state_dir) not in json.dumps([inside, outside])
