"""Who is admitted, whose runs exist for whom, and that others' leave no trace."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from durable_supervisor import Supervisor, SupervisorError
from durable_supervisor.server.requests.peers import (
    Caller,
    callers_by_uid,
    claimed_owner,
    listed_owner,
    owner_key,
)
from durable_supervisor.server.server import Server
from tests.server.http import Http
from tests.support import PATIENCE

OPERATOR = Caller(1)
ALICE = Caller(2, "ci", "alice", "default")
BOB = Caller(3, "ci", "bob", "nightly")


def test_parsing() -> None:
    assert Caller.parse("1000:ci:team-a:nightly") == Caller(1000, "ci", "team-a", "nightly")
    assert Caller.parse("0:operator") == Caller(0, "operator", "local", "default")
    assert Caller.parse("root:x:y") == Caller(0, "x", "y", "default")


@pytest.mark.parametrize(
    "text",
    ["", "1000", "1000:", "1000:a b:c", "1000:a:b:c:d", "nobody-of-this-name:a", "-1:a", "4294967295:a",
     "1000:a:b/c", "1000:a:" + "x" * 61, "1000:a\n", "\0:a", "٣:a"],
)  # fmt: skip
def test_what_is_no_caller(text: str) -> None:
    with pytest.raises(SupervisorError, match="INVALID_REQUEST: caller"):
        Caller.parse(text)


def test_who_is_admitted() -> None:
    assert set(callers_by_uid(1000, [])) == {1000, 0}
    assert callers_by_uid(1000, [])[1000].operator
    assert callers_by_uid(1000, [Caller(1000, "ci")])[1000].principal == "ci"
    assert set(callers_by_uid(1000, [ALICE])) == {1000, 0, 2}
    with pytest.raises(SupervisorError, match="twice"):
        callers_by_uid(1000, [ALICE, Caller(2)])


def test_names_of_owners() -> None:
    assert owner_key("alice", "default") == "alice"
    assert owner_key("alice", "nightly") == "alice/nightly"
    assert (OPERATOR.sees, ALICE.sees, BOB.sees) == (None, "alice", "bob/nightly")


def test_claims() -> None:
    assert claimed_owner(ALICE, None, None) == "alice"
    assert claimed_owner(BOB, "bob", "nightly") == "bob/nightly"
    assert claimed_owner(OPERATOR, "bob", "nightly") == "bob/nightly"
    assert claimed_owner(OPERATOR, None, None) == "local"
    assert listed_owner(OPERATOR, None, None) is None
    assert listed_owner(OPERATOR, "bob", "nightly") == "bob/nightly"
    assert listed_owner(ALICE, None, None) == "alice"
    for owner, namespace in (("bob", None), (None, "nightly"), ("bob", "nightly"), ("", None)):
        for decide in (claimed_owner, listed_owner):
            with pytest.raises(SupervisorError, match="OWNER_MISMATCH"):
                decide(ALICE, owner, namespace)


# With real users.

CLIENT = """
import http.client, json, socket, sys
class Unix(http.client.HTTPConnection):
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(sys.argv[1])
for line in sys.stdin:
    method, target, body, headers = json.loads(line)
    connection = Unix("x")
    connection.request(method, target, body, headers)
    answer = connection.getresponse()
    print(json.dumps([answer.status, answer.read().decode()]), flush=True)
    connection.close()
"""


def as_user(uid: int, code: str, path: str) -> subprocess.Popen[str]:
    """The system's Python: ours may stand where nobody else can read it."""
    user = ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups"]
    return subprocess.Popen(
        [*user, "/usr/bin/python3", "-I", "-c", code, path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


class User:
    """A client with a uid of its own."""

    def __init__(self, uid: int, path: str) -> None:
        self.process = as_user(uid, CLIENT, path)

    def ask(self, method: str, target: str, form: object = None) -> tuple[int, str]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        headers = {} if form is None else {"Content-Type": "application/json"}
        body = None if form is None else json.dumps(form)
        self.process.stdin.write(json.dumps([method, target, body, headers]) + "\n")
        self.process.stdin.flush()
        status, text = json.loads(self.process.stdout.readline())
        return int(status), str(text)

    def close(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait(timeout=PATIENCE)
        self.process.stdout.close()


needs_root = pytest.mark.skipif(
    os.geteuid() != 0 or not Path("/usr/bin/python3").exists(), reason="needs other users"
)


@pytest_asyncio.fixture
async def shared(sup: Supervisor, open_folder: Path) -> AsyncIterator[Server]:
    """A service for two others."""
    callers = [Caller(65001, "ci", "alice"), Caller(65002, "ci", "bob", "nightly")]
    server = Server(sup, socket=str(open_folder / "s.sock"), mode=0o666, callers=callers)
    await server.start()
    yield server
    await server.close(drain=1)


@pytest.fixture
def users(shared: Server) -> Iterator[list[User]]:
    made = [User(uid, shared.path) for uid in (65001, 65002, 65003)]
    yield made
    for user in made:
        user.close()


async def in_thread(user: User, method: str, target: str, form: object = None) -> tuple[int, str]:
    """The service is in this loop, so a blocking client must not be."""
    return await asyncio.to_thread(user.ask, method, target, form)


def code(answer: tuple[int, str]) -> str:
    return str(json.loads(answer[1])["error"]["code"])


def start(request_id: str, **fields: Any) -> dict[str, Any]:
    return {
        "command": {"argv": ["sh", "-c", "echo secret of $$; sleep 30"]},
        "request_id": request_id,
        **fields,
    }


@needs_root
async def test_two_users_cannot_see_each_other(shared: Server, users: list[User]) -> None:
    alice, bob, _ = users
    made = await in_thread(alice, "POST", "/v1/start", start("same-id"))
    assert made[0] == 201, made
    run = json.loads(made[1])["run_id"]
    stranger = "".join(reversed(run))
    for method, verb, form in (
        ("GET", "inspect", None),
        ("GET", "events", None),
        ("GET", "follow", None),
        ("GET", "wait?timeout=1", None),
        ("GET", "attach", None),
        ("POST", "stop", {}),
        ("POST", "signal", {"signal": 9}),
        ("POST", "resize", {"columns": 1, "rows": 1}),
        ("POST", "resolve", {}),
    ):
        his = await in_thread(bob, method, f"/v1/runs/{run}/{verb}", form)
        nobodys = await in_thread(bob, method, f"/v1/runs/{stranger}/{verb}", form)
        assert (his[0], code(his)) == (404, "UNKNOWN_RUN")
        assert his == (nobodys[0], nobodys[1].replace(stranger, run))  # to the byte
        short = await in_thread(bob, method, f"/v1/runs/{run[:5]}/{verb}", form)
        assert code(short) == "UNKNOWN_RUN"
    for target in ("/v1/list", "/v1/feed", "/v1/list?detail=full"):
        assert run not in (await in_thread(bob, "GET", target))[1]
        assert run in (await in_thread(alice, "GET", target))[1]
    # The same request id is another request for another owner.
    other = await in_thread(bob, "POST", "/v1/start", start("same-id"))
    assert other[0] == 201
    assert json.loads(other[1])["run_id"] != run
    assert (await in_thread(alice, "GET", f"/v1/runs/{run}/inspect"))[0] == 200
    assert json.loads((await in_thread(alice, "POST", f"/v1/runs/{run}/stop", {"grace": 0}))[1])["confirmed"]
    both = json.loads((await Http(shared.path).get("/v1/list")).body)["runs"]
    assert len(both) == 2
    theirs = json.loads((await Http(shared.path).get("/v1/list?owner=bob&namespace=nightly")).body)["runs"]
    assert [one["run_id"] for one in theirs] == [json.loads(other[1])["run_id"]]


@needs_root
async def test_claims_and_strangers(shared: Server, users: list[User]) -> None:
    alice, _, nobody = users
    for fields in ({"owner": "bob"}, {"namespace": "nightly"}, {"owner": "local"}):
        answer = await in_thread(alice, "POST", "/v1/start", start("x", **fields))
        assert (answer[0], code(answer)) == (403, "OWNER_MISMATCH")
        assert "bob" not in answer[1]
    assert code(await in_thread(alice, "GET", "/v1/list?owner=bob")) == "OWNER_MISMATCH"
    assert code(await in_thread(alice, "GET", "/v1/feed/follow?owner=bob")) == "OWNER_MISMATCH"
    for target in ("/v1/info", "/v1/list", "/metrics", "/v1/nowhere", "/v2/info"):
        answer = await in_thread(nobody, "GET", target)
        assert (answer[0], code(answer)) == (403, "PEER_DENIED")
        assert str(shared.path) not in answer[1]
    for method, target in (("GET", "/metrics"), ("POST", "/v1/reconcile"), ("POST", "/v1/gc")):
        answer = await in_thread(alice, method, target, None if method == "GET" else {})
        assert (answer[0], code(answer)) == (403, "PEER_DENIED")
    info = json.loads((await in_thread(alice, "GET", "/v1/info"))[1])
    assert info["caller"] == {"principal": "ci", "owner": "alice", "namespace": "default"}
    assert info["runs"] == {"held": None, "queued": None}


CROWD = """
import socket, sys
kept = []
for _ in range(300):
    kept.append(socket.socket(socket.AF_UNIX))
    kept[-1].connect(sys.argv[1])
print("there", flush=True)
sys.stdin.read()
"""


@needs_root
async def test_strangers_take_no_place_from_anybody(shared: Server) -> None:
    stranger = as_user(65003, CROWD, shared.path)
    assert stranger.stdout is not None
    assert await asyncio.to_thread(stranger.stdout.readline) == "there\n"
    assert (await Http(shared.path).get("/v1/info")).status == 200
    await asyncio.to_thread(stranger.communicate)


async def test_the_own_user_is_the_operator(http: Http, server: Server) -> None:
    made = await http.post(
        "/v1/start", {"command": {"argv": ["true"]}, "owner": "bob", "namespace": "nightly"}
    )
    assert made.status == 201
    run = made.json()["run_id"]
    assert (await http.get(f"/v1/runs/{run}/inspect")).json()["owner"] == "bob/nightly"
    assert (await http.get("/v1/list?owner=bob")).json()["runs"] == []
