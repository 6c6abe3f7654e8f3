"""Each verb over the socket, and that its answer is the document that it should be."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from durable_supervisor import AsyncClient, Supervisor, __version__
from durable_supervisor.wire.documents import validate
from tests.server.http import Answer, Http
from tests.support import eventually_async


def document(answer: Answer, name: str, status: int = 200) -> Any:
    assert answer.status == status, answer
    assert answer.headers["content-type"] == "application/json; charset=utf-8"
    assert answer.headers["cache-control"] == "no-store"
    form = answer.json()
    validate(name, form)
    return form


async def test_info(http: Http, state_dir: Path) -> None:
    form = document(await http.get("/v1/info"), "info")
    assert form["version"] == __version__
    assert form["api_versions"] == [1]
    assert (form["phase"], form["kind"]) == ("accepting", "embedded")
    assert form["state_dir"] == str(state_dir)
    assert form["caller"] == {"principal": "operator", "owner": "local", "namespace": "default"}
    assert form["runs"] == {"held": 0, "queued": 0}


async def test_capabilities(http: Http) -> None:
    form = document(await http.get("/v1/capabilities"), "capabilities")
    assert {"axis": "tree", "asked": "policy"}.items() <= form["capabilities"][0].items()


async def test_a_run_from_start_to_end(http: Http) -> None:
    body = {"command": {"argv": ["sh", "-c", "echo hi; exit 3"]}, "request_id": "one", "labels": {"a": "b"}}
    first = document(await http.post("/v1/start", body), "start", 201)
    again = document(await http.post("/v1/start", body), "start", 200)
    assert again["run_id"] == first["run_id"]
    assert (first["admission"], again["admission"]) == ("new", "existing")
    run = f"/v1/runs/{first['run_id']}"
    over = document(await http.get(f"{run}/wait?timeout=60"), "inspect")
    assert over["outcome"] == {"kind": "exited", "code": 3, "signal": None}
    assert document(await http.get(f"{run}/inspect"), "inspect")["labels"] == {"a": "b"}
    page = document(await http.get(f"{run}/events"), "page")
    assert "".join(event.get("text", "") for event in page["events"]) == "hi\n"
    assert page["end"]
    assert page["next_after"] == page["head"]
    stopped = document(await http.post(f"{run}/stop"), "stop")
    assert stopped["result"] == "already_ended"


async def test_the_beginning_of_an_id_will_do(http: Http) -> None:
    run_id = await http.start("true")
    assert (await http.get(f"/v1/runs/{run_id[:6]}/inspect")).json()["run_id"] == run_id


async def test_pages_of_events(http: Http) -> None:
    run_id = await http.start("sh", "-c", "for i in 1 2 3 4 5; do echo $i; sleep .01; done; echo x >&2")
    await http.wait(run_id)
    whole = (await http.get(f"/v1/runs/{run_id}/events?limit=1000")).json()["events"]
    found: list[Any] = []
    after = 0
    while True:
        page = document(await http.get(f"/v1/runs/{run_id}/events?limit=2&after={after}"), "page")
        found += page["events"]
        after = page["next_after"]
        if page["end"]:
            break
    assert found == whole
    quiet = await http.get(f"/v1/runs/{run_id}/events?output=false&kind=program.exited&kind=run.finished")
    assert [event["kind"] for event in quiet.json()["events"]] == ["program.exited", "run.finished"]


@pytest.mark.parametrize(("size", "byte"), [(12_000_000, "a"), (4_000_000, "\\1")])
async def test_a_page_of_large_events_is_cut(http: Http, size: int, byte: str) -> None:
    """By the bytes it is sent in, so that it is too large for nobody's memory; nothing is lost by it."""
    run_id = await http.start("sh", "-c", f"head -c {size} /dev/zero | tr '\\0' '{byte}'")
    await http.wait(run_id)
    got, after, pages = 0, 0, 0
    while True:
        answer = await http.get(f"/v1/runs/{run_id}/events?limit=10000&after={after}")
        assert len(answer.body) < 10_000_000
        page = answer.json()
        got += sum(len(event.get("text", "")) for event in page["events"])
        after, pages = page["next_after"], pages + 1
        if page["end"]:
            break
    assert got == size
    assert pages >= 2


async def test_lists(http: Http) -> None:
    for number in range(3):
        await http.wait(await http.start("true", labels={"n": str(number)}))
    page = document(await http.get("/v1/list?limit=2"), "list")
    rest = document(await http.get(f"/v1/list?limit=2&before={page['next_before']}"), "list")
    assert len(page["runs"]) + len(rest["runs"]) == 3
    assert rest["next_before"] is None

    async def folded() -> bool:  # a filter by state goes by the journal, which follows in a moment
        one = document(await http.get("/v1/list?label=n=1&state=finished"), "list")
        return [run["labels"] for run in one["runs"]] == [{"n": "1"}]

    await eventually_async(folded)
    full = document(await http.get("/v1/list?detail=full"), "list")
    assert all(run["schema"] == "durable-supervisor/inspect/1" for run in full["runs"])


async def test_a_list_of_large_runs_is_cut(
    http: Http, sup: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By bytes, slice by slice, so that it holds up nobody; a client puts the pages together."""
    monkeypatch.setattr("durable_supervisor.server.routes.read._SLICE", 2)
    monkeypatch.setattr("durable_supervisor.server.routes.read._MAX_PAGE_BYTES", 20_000)
    made = [await http.start("true", "x" * 6000) for _ in range(7)]
    sizes, found, before = [], [], 1 << 40
    while before is not None:
        page = document(await http.get(f"/v1/list?limit=6&before={before}&detail=full"), "list")
        sizes.append(len(page["runs"]))
        found += [run["run_id"] for run in page["runs"]]
        before = page["next_before"]
    assert (sizes, found) == ([4, 3], made[::-1])
    async with AsyncClient.connect(sup.state_dir) as client:
        first = await client.list(limit=6)
        rest = await client.list(before=first.next_before)
    assert [run.id for run in first.runs] == made[:0:-1]
    assert ([run.id for run in rest.runs], rest.next_before) == (made[:1], None)


async def test_the_feed(http: Http) -> None:
    run_id = await http.start("true")
    await http.wait(run_id)

    async def folded() -> bool:
        entries = document(await http.get("/v1/feed"), "feed-page")["entries"]
        return [entry["run_id"] for entry in entries if entry["state"] == "finished"] == [run_id]

    await eventually_async(folded)
    page = (await http.get("/v1/feed?after=1&limit=1")).json()
    assert [entry["position"] for entry in page["entries"]] == [2]
    assert page["next_after"] == 2
    assert (await http.get("/v1/feed?after=1000")).json() == {
        "schema": "durable-supervisor/feed-page/1",
        "entries": [],
        "next_after": 1000,
    }


async def test_stdin_signal_and_stop(http: Http) -> None:
    run_id = (await http.post("/v1/start", {"command": {"argv": ["cat"], "stdin": "open"}})).json()["run_id"]
    run = f"/v1/runs/{run_id}"
    written = await http.ask(
        "POST", f"{run}/write-stdin", b"\x00\xffbytes\n", {"Content-Type": "application/octet-stream"}
    )
    assert document(written, "control")["bytes"] == 8

    async def echoed() -> Any:
        return (await http.get(f"{run}/events?kind=output")).json()["events"]

    await eventually_async(echoed)
    signalled = document(await http.post(f"{run}/signal", {"signal": "URG", "target": "tree"}), "control")
    assert signalled["op"] == "signal"
    stopped = document(await http.post(f"{run}/stop", {"grace": 5}), "stop")
    assert stopped["confirmed"]
    events = (await http.get(f"{run}/events?kind=output")).json()["events"]
    assert b"".join(base64.b64decode(event["base64"]) for event in events) == b"\x00\xffbytes\n"


async def test_end_of_stdin(http: Http) -> None:
    body = {"command": {"argv": ["cat"], "stdin": "open"}}
    run_id = (await http.post("/v1/start", body)).json()["run_id"]
    octets = {"Content-Type": "application/octet-stream"}
    assert (await http.ask("POST", f"/v1/runs/{run_id}/write-stdin?eof=true", b"x", octets)).status == 200
    assert (await http.wait(run_id))["outcome"]["code"] == 0
    late = await http.ask("POST", f"/v1/runs/{run_id}/write-stdin", b"x", octets)
    assert (late.status, late.code) == (409, "NOT_RUNNING")


@pytest.mark.parametrize(
    ("stdin", "text"),
    [({"text": "grüße"}, "grüße"), ({"base64": base64.b64encode(b"abc").decode()}, "abc"), (None, "")],
)
async def test_stdin_with_the_start(http: Http, stdin: object, text: str) -> None:
    answer = await http.post("/v1/start", {"command": {"argv": ["cat"], "stdin": stdin}})
    run_id = answer.json()["run_id"]
    await http.wait(run_id)
    events = (await http.get(f"/v1/runs/{run_id}/events?kind=output")).json()["events"]
    assert "".join(event["text"] for event in events) == text


async def test_everything_of_a_start_arrives(http: Http, tmp_path: Path) -> None:
    host = {"environ": {"PATH": "/usr/bin:/bin", "GIVEN": "by host"}, "cwd": str(tmp_path), "umask": 0o027}
    body = {
        "command": {
            "argv": ["sh", "-c", "pwd; umask; echo $GIVEN $A $PW"],
            "env": {"A": "1"},
            "secret_env": {"PW": "hunter2hunter2"},
            "inherit_env": ["GIVEN"],
            "secrets": ["another secret"],
        },
        "limits": {"timeout": 20, "grace": 1, "on_limit": "terminate", "max_stdout_bytes": 4096},
        "completion": "tree",
        "host": host,
    }
    answer = await http.post("/v1/start", body)
    assert answer.status == 201, answer
    run_id = answer.json()["run_id"]
    seen = await http.wait(run_id)
    assert seen["limits"]["max_stdout_bytes"] == 4096
    assert seen["completion"] == "tree"
    events = (await http.get(f"/v1/runs/{run_id}/events?kind=output")).json()["events"]
    assert "".join(event["text"] for event in events) == f"{tmp_path}\n0027\nby host 1 [redacted]\n"


@pytest.mark.parametrize("detour", ["", "/", "/./x/.."])
async def test_the_same_request_over_the_socket_and_in_process(
    http: Http, sup: Supervisor, detour: str
) -> None:
    """With the caller's facts sent along it is the same request, whichever way it came."""
    import os

    from durable_supervisor import Command
    from durable_supervisor.process.caller import read_umask

    run = await sup.start(Command(argv=["true"], inherit_env=["HOME"]), request_id="same")
    host = {"environ": dict(os.environ), "cwd": os.getcwd() + detour, "umask": read_umask()}
    body = {"command": {"argv": ["true"], "inherit_env": ["HOME"]}, "request_id": "same", "host": host}
    answer = await http.post("/v1/start", body)
    assert (answer.status, answer.json()["run_id"]) == (200, run.id)


async def test_conflicts_name_fields_and_no_values(http: Http) -> None:
    await http.start("true", request_id="mine")
    body = {"command": {"argv": ["true"], "env": {"X": "value-of-x"}}, "request_id": "mine"}
    answer = await http.post("/v1/start", body)
    assert (answer.status, answer.code) == (409, "IDEMPOTENCY_CONFLICT")
    assert "value-of-x" not in answer.body.decode()


async def test_names_that_are_no_unicode_stay_valid_json(http: Http, sup: Supervisor) -> None:
    from durable_supervisor import Command

    run = await sup.start(Command(argv=["echo", b"\xff\xfe"]))  # type: ignore[list-item]
    answer = await http.get(f"/v1/runs/{run.id}/inspect")
    answer.body.decode("ascii")
    assert json.loads(answer.body)["argv"] == ["echo", "\udcff\udcfe"]


async def test_resolve_and_reconcile(http: Http) -> None:
    run_id = await http.start("true")
    await http.wait(run_id)
    refused = await http.post(f"/v1/runs/{run_id}/resolve", {"action": "accept", "note": "seen"})
    assert (refused.status, refused.code) == (409, "NOT_RESOLVABLE")
    document(await http.post("/v1/reconcile"), "reconcile")


async def test_waiting_has_an_end(http: Http) -> None:
    run_id = await http.start("sleep", "30")
    answer = await http.get(f"/v1/runs/{run_id}/wait?timeout=0.05")
    assert (answer.status, answer.code) == (504, "WAIT_TIMEOUT")
    assert answer.json()["error"]["retryable"]
    await http.post(f"/v1/runs/{run_id}/stop", {"grace": 0})


async def test_metrics_are_for_the_operator(http: Http) -> None:
    answer = await http.get("/metrics")
    assert answer.status == 200
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert b"durable_supervisor_runs" in answer.body
