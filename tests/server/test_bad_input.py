"""What is wrong costs its sender a typed refusal, and nobody else anything."""

from __future__ import annotations

import json
import socket
from typing import Any

import h11
import pytest

from durable_supervisor.server.server import Server
from tests.server.http import JSON, Http, connected, raw

GOOD = {"command": {"argv": ["true"]}}
DEEP = b"[" * 65 + b"]" * 65
QUOTES = b'{"command": {"argv": ["' + b'\\"' * 200_000


def start(**fields: Any) -> bytes:
    return json.dumps({**GOOD, **fields}).encode()


def command(**fields: Any) -> bytes:
    return json.dumps({"command": {"argv": ["true"], **fields}}).encode()


BODIES = [
    pytest.param(b'{"command": {"argv": ["true"], "argv": ["false"]}}', "argv", id="duplicate key"),
    pytest.param(b'{"command": {"argv": ["true"]}, "priority": NaN}', "body", id="NaN"),
    pytest.param(b'{"command": {"argv": ["true"]}, "limits": {"grace": Infinity}}', "body", id="infinity"),
    pytest.param(b'{"command": {"argv": ["true"]}, "limits": {"grace": 1e999}}', "body", id="overflow"),
    pytest.param(b'{"command": {"argv": ["true"]}, "priority": ' + b"9" * 5000 + b"}", "body", id="digits"),
    pytest.param(DEEP, "body", id="depth 65"),
    pytest.param(b"[" * 500_000, "body", id="depth 500000"),
    pytest.param(QUOTES, "body", id="a flood of quotes"),
    pytest.param(b'{"command": {"argv": ["\\ud800"]}}', "command.argv[0]", id="lone surrogate"),
    pytest.param(b'{"command": {"argv": ["true"], "env": {"\\udfff": "x"}}}', None, id="surrogate name"),
    pytest.param(b'{"command": {"argv": ["\xff"]}}', "body", id="not UTF-8"),
    pytest.param(b'\xef\xbb\xbf{"command": {"argv": ["true"]}}', "body", id="byte order mark"),
    pytest.param(b'{"command": ', "body", id="cut short"),
    pytest.param(b'{"command": {"argv": ["true"]}} {}', "body", id="two values"),
    pytest.param(b"{'command': 1}", "body", id="not JSON"),
    pytest.param(b"null", "body", id="null"),
    pytest.param(b"[]", "body", id="a list"),
    pytest.param(b"", "command", id="empty"),
    pytest.param(b"{}", "command", id="no command"),
    pytest.param(start(commandd={}), "commandd", id="unknown field"),
    pytest.param(start(limits={"timout": 3}), "limits.timout", id="unknown bound"),
    pytest.param(start(limits={"timeout": "3"}), "limits.timeout", id="a string for a number"),
    pytest.param(start(limits={"timeout": -1}), "limits.timeout", id="negative"),
    pytest.param(start(limits={"timeout": 1e18}), "limits.timeout", id="out of bounds"),
    pytest.param(start(limits={"timeout": True}), "limits.timeout", id="a boolean for a number"),
    pytest.param(start(limits={"max_stdout_bytes": 1.5}), "limits.max_stdout_bytes", id="a fraction"),
    pytest.param(start(limits={"on_limit": "explode"}), "limits.on_limit", id="no such word"),
    pytest.param(start(completion="later"), "completion", id="no such completion"),
    pytest.param(start(request_id="a\n"), "request_id", id="an id with a newline"),
    pytest.param(start(request_id="a b"), "request_id", id="an id with a space"),
    pytest.param(start(request_id=""), "request_id", id="an empty id"),
    pytest.param(start(request_id="x" * 129), "request_id", id="a long id"),
    pytest.param(start(request_id=7), "request_id", id="a number for an id"),
    pytest.param(start(labels={"a b": "c"}), "labels", id="a label's name"),
    pytest.param(start(labels={str(n): "" for n in range(65)}), "labels", id="65 labels"),
    pytest.param(start(owner="a/b"), "owner", id="an owner's name"),
    pytest.param(start(namespace="n\n"), "namespace", id="a namespace's name"),
    pytest.param(start(priority=101), "priority", id="priority"),
    pytest.param(start(queue="yes"), "queue", id="a string for a boolean"),
    pytest.param(start(host={"environ": {}, "cwd": "x", "umask": 0}), "host.cwd", id="a relative host"),
    pytest.param(start(host={"environ": {"A": "\0"}, "cwd": "/", "umask": 0}), "host.environ", id="NUL"),
    pytest.param(start(host={"environ": {}, "cwd": "/", "umask": 512}), "host.umask", id="umask"),
    pytest.param(command(argv=[]), "argv", id="empty argv"),
    pytest.param(command(argv="true"), "command.argv", id="argv as one string"),
    pytest.param(command(argv=["a\0b"]), "argv[0]", id="NUL in argv"),
    pytest.param(command(env={"A=B": "x"}), "env", id="= in a name"),
    pytest.param(command(env={"LD_PRELOAD": "x"}), "env[LD_PRELOAD]", id="LD_PRELOAD"),
    pytest.param(command(env={"A": 1}), "command.env.A", id="a number in env"),
    pytest.param(command(secret_env={"A": "short"}), "secret_env[A]", id="a short secret"),
    pytest.param(command(stdin="closed"), "command.stdin", id="no such stdin"),
    pytest.param(command(stdin={"base64": "%"}), "command.stdin.base64", id="not base64"),
    pytest.param(command(pty={"columns": 0}), "command.pty.columns", id="no columns"),
]


@pytest.mark.parametrize(("body", "field"), BODIES)
async def test_bodies(http: Http, body: bytes, field: str | None) -> None:
    answer = await http.post("/v1/start", body=body)
    assert (answer.status, answer.code) == (400, "INVALID_REQUEST"), answer
    if field is not None:
        assert answer.field == field
    assert (await http.get("/v1/list")).json()["runs"] == []


async def test_a_refusal_repeats_no_value(http: Http) -> None:
    secret = "correct horse battery"
    for body in (
        command(secret_env={"A": secret, "B": 1}),
        command(stdin={"base64": secret}),
        command(secrets=[secret, 1]),
        json.dumps({"command": {"argv": ["x"], "secret_env": secret}}).encode(),
        b'{"command": {"secret_env": {"A": "' + secret.encode(),
    ):
        answer = await http.post("/v1/start", body=body)
        assert answer.code == "INVALID_REQUEST"
        assert secret not in answer.body.decode()


async def test_too_large(http: Http) -> None:
    """Announced or not, and the sender gets to see why."""
    body = start(labels={"a": "x" * 2_000_000})
    answer = await http.post("/v1/start", body=body)
    assert (answer.status, answer.code) == (413, "FRAME_TOO_LARGE")
    async with connected(http.path) as wire:
        await wire.send(
            b"POST /v1/start HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n"
        )
        wire._http.send(
            h11.Request(method="POST", target="/", headers=[("Host", "x"), ("Content-Length", "0")])
        )
        for _ in range(20):
            await wire.send(b"10000\r\n" + b" " * 65536 + b"\r\n")
        answer = await wire.answer()
    assert (answer.status, answer.code) == (413, "FRAME_TOO_LARGE")


@pytest.mark.parametrize(
    ("headers", "field"),
    [
        ({"Content-Type": "text/plain"}, "Content-Type"),
        ({"Content-Type": "application/x-www-form-urlencoded"}, "Content-Type"),
        ({"Content-Type": JSON, "Content-Encoding": "gzip"}, "Content-Encoding"),
    ],
)
async def test_bodies_of_another_kind(http: Http, headers: dict[str, str], field: str) -> None:
    answer = await http.ask("POST", "/v1/start", start(), headers)
    assert (answer.status, answer.code, answer.field) == (400, "INVALID_REQUEST", field)


@pytest.mark.parametrize(
    ("target", "field"),
    [
        ("/v1/list?limit=0", "limit"),
        ("/v1/list?limit=10001", "limit"),
        ("/v1/list?limit=ten", "limit"),
        ("/v1/list?limit=%D9%A1", "limit"),
        ("/v1/list?limit=1&limit=2", "limit"),
        ("/v1/list?limit=", "limit"),
        ("/v1/list?before=-1", "before"),
        ("/v1/list?before=9223372036854775808", "before"),
        ("/v1/list?state=dead", "state"),
        ("/v1/list?label=x", "label"),
        ("/v1/list?detail=more", "detail"),
        ("/v1/list?wrong=1", "wrong"),
        ("/v1/list?owner=a/b", "owner"),
        ("/v1/info?x", "x"),
        ("/v1/feed?after=1e3", "after"),
        ("/v1/runs/abc%0A/inspect", "run"),
        ("/v1/runs/%00/inspect", "run"),
        ("/v1/runs/..%2F..%2Fetc/inspect", "run"),
        ("/v1/runs/a%25/inspect", "run"),
        ("/v1/runs/12345678901234567/inspect", "run"),
        ("/v1/runs/%C3%A9/inspect", "run"),
        ("/v1/runs/abc/events?output=yes", "output"),
        ("/v1/runs/abc/wait?timeout=-1", "timeout"),
        ("/v1/runs/abc/wait?timeout=nan", "timeout"),
        ("/v1/runs/abc/wait?timeout=99999999999", "timeout"),
    ],
)
async def test_targets(http: Http, target: str, field: str) -> None:
    answer = await http.get(target)
    assert (answer.status, answer.code, answer.field) == (400, "INVALID_REQUEST", field), answer


@pytest.mark.parametrize(
    ("method", "target", "status"),
    [
        ("GET", "/", 404),
        ("GET", "/v1", 404),
        ("GET", "/v1/", 404),
        ("GET", "/v1/runs//inspect", 404),
        ("GET", "/v1/runs/a/b/inspect", 404),
        ("POST", "/v1/info", 405),
        ("DELETE", "/v1/list", 405),
        ("HEAD", "/v1/list", 405),
        ("PATCH", "/v1/list", 405),
    ],
)
async def test_paths_and_methods(http: Http, method: str, target: str, status: int) -> None:
    answer = await http.ask(method, target)
    assert answer.status == status
    if method != "HEAD":
        assert answer.code == "INVALID_REQUEST"
    if status == 405:
        assert answer.headers["allow"] == "GET"


async def test_unknown_versions(http: Http) -> None:
    for target in ("/v2/info", "/v0/start", "/v2", "/v11/runs/a/inspect"):
        answer = await http.get(target)
        assert (answer.status, answer.code) == (400, "UNSUPPORTED_API_VERSION")
        assert answer.json()["error"]["details"] == {"api_versions": [1]}
    answer = await http.get("/v1/info", Durable_Supervisor_Api="2")
    assert answer.code == "UNSUPPORTED_API_VERSION"
    assert (await http.get("/v1/info", Durable_Supervisor_Api="1")).status == 200


async def test_runs_that_are_not_there(http: Http) -> None:
    for verb in ("inspect", "events", "follow", "wait"):
        answer = await http.get(f"/v1/runs/0123456789abcdef/{verb}")
        assert (answer.status, answer.code) == (404, "UNKNOWN_RUN")
    for verb, form in (("stop", {}), ("signal", {"signal": 15}), ("resolve", {})):
        answer = await http.post(f"/v1/runs/0123456789abcdef/{verb}", form)
        assert (answer.status, answer.code) == (404, "UNKNOWN_RUN")


async def test_cursors_ahead(http: Http) -> None:
    run_id = await http.start("true")
    await http.wait(run_id)
    for verb in ("events", "follow"):
        answer = await http.get(f"/v1/runs/{run_id}/{verb}?after=1000")
        assert (answer.status, answer.code) == (409, "CURSOR_AHEAD")
    answer = await http.get(f"/v1/runs/{run_id}/follow", Last_Event_ID="x")
    assert (answer.status, answer.field) == (400, "Last-Event-ID")


RAW = [
    pytest.param(b"hello\r\n\r\n", id="no HTTP"),
    pytest.param(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", id="TLS"),
    pytest.param(b"BREW /v1/list HTTP/1.1\r\nHost: x\r\n\r\n", id="another method"),
    pytest.param(b"GET / HTTP/9.9\r\n\r\n", id="another HTTP"),
    pytest.param(b"GET /v1/info HTTP/1.1\r\nHost: x\r\nBad Header\r\n\r\n", id="a broken header"),
    pytest.param(
        b"GET /v1/info HTTP/1.1\r\nHost: x\r\nX: " + b"y" * 100_000 + b"\r\n\r\n", id="a long header"
    ),
    pytest.param(b"GET /" + b"y" * 100_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", id="a long path"),
    pytest.param(
        b"POST /v1/start HTTP/1.1\r\nHost: x\r\nContent-Length: x\r\n\r\n", id="a length that is no number"
    ),
    pytest.param(
        b"POST /v1/start HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n",
        id="two lengths",
    ),
    pytest.param(
        b"POST /v1/start HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
        id="a broken chunk",
    ),
    pytest.param(
        b"GET /v1/info HTTP/1.1\r\nHost: x\r\nExpect: miracles\r\n\r\n", id="an expectation that nobody meets"
    ),
]


@pytest.mark.parametrize("data", RAW)
async def test_what_is_not_http(http: Http, data: bytes) -> None:
    async with connected(http.path) as wire:
        wire._http.send(h11.Request(method="GET", target="/", headers=[("Host", "x")]))
        wire._http.send(h11.EndOfMessage())
        await wire.send(data)
        answer = await wire.answer()
    assert 400 <= answer.status < 500
    assert answer.code == "INVALID_REQUEST"
    assert (await http.get("/v1/info")).status == 200


async def test_a_client_that_waits_to_be_asked_for_its_body(http: Http) -> None:
    body = start()
    async with connected(http.path) as wire:
        await wire.send(
            b"POST /v1/start HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            b"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n" % len(body)
        )
        assert (await wire.reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 100 Continue")
        await wire.send(body)
        assert (await wire.reader.readuntil(b"\r\n")).startswith(b"HTTP/1.1 201")


async def test_clients_that_vanish(http: Http, server: Server) -> None:
    """In the middle of a request, or before its answer: the others do not notice."""
    for data in (
        b"GET /v1/in",
        (
            b"POST /v1/start HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            b"Content-Length: 99\r\n\r\n{"
        ),
        b"GET /v1/list HTTP/1.1\r\nHost: x\r\n\r\n" * 100,
        b"GET /v1/feed/follow HTTP/1.1\r\nHost: x\r\n\r\n",
    ):
        for _ in range(10):
            connection = raw(server.path)
            connection.sendall(data)
            connection.shutdown(socket.SHUT_RDWR)
            connection.close()
    assert (await http.get("/v1/info")).status == 200


async def test_a_start_outlives_the_client_that_sent_it(http: Http, server: Server) -> None:
    body = start(request_id="left")
    connection = raw(server.path)
    connection.sendall(
        b"POST /v1/start HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
        % len(body)
        + body
    )
    connection.close()
    answer = await http.post("/v1/start", body=body)  # whether it got through or not: one run
    assert answer.status in (200, 201)
    assert len((await http.get("/v1/list")).json()["runs"]) == 1
