"""Every verb of both faces against a real service: the answers are those of the supervisor itself."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from durable_supervisor import (
    Command,
    ErrorCode,
    Event,
    Kind,
    Limits,
    RunState,
    Supervisor,
    SupervisorError,
    Terminal,
)
from durable_supervisor.server.server import Server
from tests.client.faces import Face
from tests.contract.hosts import refused
from tests.contract.runs import check_gapless
from tests.support import PATIENCE, eventually_async

A_RUN = "a run that there is"


async def sh(face: Face, script: str, *, limits: Limits | None = None, **command: Any) -> str:
    run = await face.call("start", Command(argv=["sh", "-c", script], **command), limits=limits)
    return str(run.id)


async def output(face: Face, run: str) -> bytes:
    page = await face.call("events", run, limit=1000)
    return b"".join(event.data for event in page.events)


async def printed(face: Face, run: str, text: bytes) -> None:
    async def seen() -> bool:
        return text in await output(face, run)

    await eventually_async(seen, PATIENCE, f"{text!r} was never printed")


async def test_a_whole_life(face: Face, sup: Supervisor, state_dir: Path) -> None:
    command = Command(argv=["sh", "-c", "read line; echo got $line; cat; exit 3"], stdin="open")
    run = await face.call("start", command, request_id="life", labels={"team": "infra"})
    assert (run.admission, run.request_id) == ("new", "life")
    assert (await face.call("start", command, request_id="life")).id == run.id
    receipt = await face.call("write_stdin", run.id, b"it\n", eof=True)
    assert (receipt.op, receipt.result) == ("close_stdin", "closed")
    seen = await face.call("wait", run.id, timeout=PATIENCE)
    assert (seen.state, seen.outcome.code) == (RunState.FINISHED, 3)
    await eventually_async(lambda: settled(sup, [run.id]))
    assert (await face.call("inspect", run.id[:6])).to_dict() == (await sup.inspect(run.id)).to_dict()
    assert await face.call("find", run.id[:6]) == run.id
    assert await output(face, run.id) == b"got it\n"
    assert face.client.state_dir == str(state_dir)


async def test_pages_lists_and_feeds_are_the_supervisors(face: Face, sup: Supervisor) -> None:
    runs = [await sh(face, f"echo {number}; echo oops >&2") for number in range(3)]
    for run in runs:
        await face.call("wait", run, timeout=PATIENCE)
    await eventually_async(lambda: settled(sup, runs))

    page, own = await face.call("events", runs[0], limit=4), await sup.events(runs[0], limit=4)
    assert [one.to_dict() for one in page.events] == [one.to_dict() for one in own.events]
    assert (page.next_after, page.head, page.generation, page.end) == (
        own.next_after, own.head, own.generation, own.end,
    )  # fmt: skip
    quiet = await face.call("events", runs[0], output=False)
    assert not [event for event in quiet.events if event.kind == Kind.OUTPUT]
    none = await face.call("events", runs[0], kinds=[])
    assert (none.events, none.next_after) == ([], (await sup.events(runs[0], kinds=[])).next_after)

    first = await face.call("list", limit=2)
    rest = await face.call("list", limit=2, before=first.next_before)
    assert [view.id for view in (*first.runs, *rest.runs)] == runs[::-1]
    assert first.to_dict() == (await sup.list(limit=2)).to_dict()
    assert (await face.call("list", states=[])).runs == []
    assert [view.id for view in (await face.call("list", states=["finished"], owner="local")).runs] == runs[
        ::-1
    ]
    assert (await face.call("list", owner="someone-else")).runs == []

    entries = await face.call("feed", limit=100)
    assert [entry.position for entry in entries] == [entry.position for entry in await sup.feed(limit=100)]
    assert await face.call("feed", after=entries[-1].position) == []


async def settled(sup: Supervisor, runs: list[str]) -> bool:
    """Folded into the journal: what lists show does not change any more."""
    states = [entry for entry in await sup.feed(limit=1000) if entry.state is RunState.FINISHED]
    return {entry.run_id for entry in states} == set(runs)


async def test_following_to_the_end(face: Face) -> None:
    run = await sh(face, "for i in 1 2 3 4 5; do echo $i; sleep 0.02; done")
    events: list[Event] = [event async for event in face.stream("follow", run)]
    check_gapless(events)
    assert events[-1].kind == Kind.RUN_FINISHED
    assert b"".join(event.data for event in events) == b"1\n2\n3\n4\n5\n"
    again = [event async for event in face.stream("follow", run[:8], after=3, output=False)]
    assert [event.seq for event in again] == [
        event.seq for event in events if event.seq > 3 and event.kind != Kind.OUTPUT
    ]
    assert [event.kind async for event in face.stream("follow", run, kinds=["run.finished"])] == [
        "run.finished"
    ]


async def test_following_the_feed(face: Face) -> None:
    stream = face.stream("follow_feed")
    run = await sh(face, "exit 0")
    found = []
    async for entries in stream:
        found += entries
        if found[-1].state is RunState.FINISHED:
            break
    assert [entry.position for entry in found] == list(range(1, len(found) + 1))
    assert {entry.run_id for entry in found} == {run}
    await stream.aclose()  # type: ignore[attr-defined]


async def test_stop_signal_and_their_receipts(face: Face) -> None:
    run = await sh(
        face, "trap 'echo caught' USR1; echo on; while :; do sleep 0.05; done", limits=Limits(grace=1)
    )
    await printed(face, run, b"on\n")
    receipt = await face.call("signal", run, signal.SIGUSR1, target="leader")
    assert (receipt.op, receipt.detail["signal"]) == ("signal", signal.SIGUSR1)
    await printed(face, run, b"caught\n")
    stopped = await face.call("stop", run, grace=0.5)
    assert (stopped.result, stopped.confirmed, stopped.state) == ("stopping", True, RunState.FINISHED)
    assert (await face.call("stop", run)).result == "already_ended"
    async with refused(ErrorCode.NOT_RUNNING):
        await face.call("signal", run, signal.SIGUSR1)


async def test_a_terminal_and_its_size(face: Face) -> None:
    run = await sh(
        face, "trap 'stty size; exit' WINCH; stty size; while :; do sleep 0.05; done", pty=Terminal()
    )
    await printed(face, run, b"24 80")
    assert (await face.call("resize", run, 100, 40)).op == "resize"
    await printed(face, run, b"40 100")
    await face.call("stop", run, grace=0.1)


async def test_a_large_stdin_goes_in_pieces(face: Face) -> None:
    data = os.urandom(1 << 20) * 3 + b"end"
    run = await sh(face, "cksum", stdin="open")
    receipt = await face.call("write_stdin", run, data, eof=True)
    assert receipt.result == "closed"
    await face.call("wait", run, timeout=PATIENCE)
    assert (await output(face, run)).split()[1] == b"%d" % len(data)


async def test_too_much_at_once_is_not_sent(face: Face) -> None:
    command = Command(argv=["cat"], stdin=b"x" * (1 << 20))
    async with refused(ErrorCode.FRAME_TOO_LARGE) as caught:
        await face.call("start", command, request_id="big")
    assert caught().details["limit"] == 1 << 20
    assert "write_stdin" in caught().hint
    assert (await face.call("start", Command(argv=["true"]), request_id="big")).admission == "new"


async def test_waiting(face: Face) -> None:
    run = await sh(face, "exec sleep 60")
    async with refused(ErrorCode.WAIT_TIMEOUT) as caught:
        await face.call("wait", run, timeout=0.2)
    assert "after 0.2 s" in caught().message
    assert caught().details["run_id"] == run
    waiting = asyncio.ensure_future(_wait(face, run))
    await face.call("stop", run, grace=0.1)
    assert (await waiting).outcome.kind == "cancelled"


async def _wait(face: Face, run: str) -> Any:
    return await face.call("wait", run, timeout=PATIENCE)


REFUSALS: list[tuple[str, list[Any], dict[str, Any], ErrorCode]] = [
    ("inspect", ["0000000000000000"], {}, ErrorCode.UNKNOWN_RUN),
    ("inspect", [""], {}, ErrorCode.UNKNOWN_RUN),
    ("inspect", ["../info"], {}, ErrorCode.UNKNOWN_RUN),
    ("inspect", ["x\r\nHost: y"], {}, ErrorCode.UNKNOWN_RUN),
    ("inspect", [7], {}, ErrorCode.INVALID_REQUEST),
    ("events", [A_RUN], {"after": -1}, ErrorCode.INVALID_REQUEST),
    ("events", [A_RUN], {"after": 1000}, ErrorCode.CURSOR_AHEAD),
    ("events", [A_RUN], {"limit": True}, ErrorCode.INVALID_REQUEST),
    ("list", [], {"limit": 0}, ErrorCode.INVALID_REQUEST),
    ("list", [], {"label": "a=b"}, ErrorCode.INVALID_REQUEST),
    ("list", [], {"states": ["lost"]}, ErrorCode.INVALID_REQUEST),
    ("wait", ["0" * 16], {"timeout": -1}, ErrorCode.INVALID_REQUEST),
    ("wait", ["0" * 16], {}, ErrorCode.UNKNOWN_RUN),
    ("stop", ["0" * 16], {}, ErrorCode.UNKNOWN_RUN),
    ("stop", [A_RUN], {"grace": float("nan")}, ErrorCode.INVALID_REQUEST),
    ("signal", ["0" * 16, 9], {"target": "all"}, ErrorCode.INVALID_REQUEST),
    ("signal", ["0" * 16, 99], {}, ErrorCode.INVALID_REQUEST),
    ("write_stdin", ["0" * 16, "text"], {}, ErrorCode.INVALID_REQUEST),
    ("resolve", ["0" * 16, "accept"], {}, ErrorCode.UNKNOWN_RUN),
    ("start", [Command(argv=["true"])], {"request_id": "a b"}, ErrorCode.INVALID_REQUEST),
    ("start", ["true"], {}, ErrorCode.INVALID_REQUEST),
]


async def test_refusals_are_the_supervisors(face: Face, sup: Supervisor) -> None:
    """Code, phase and, where nothing of the wire is in it, every word."""
    run = await sh(face, "exec sleep 60")
    for verb, given, options, code in REFUSALS:
        args = [run if arg == A_RUN else arg for arg in given]
        async with refused(code) as caught:
            await face.call(verb, *args, **options)
        with pytest.raises(SupervisorError) as own:
            await getattr(sup, verb)(*args, **options)
        assert (own.value.code, own.value.phase) == (caught().code, caught().phase), verb
        if code is ErrorCode.UNKNOWN_RUN:
            assert own.value.to_dict() == caught().to_dict()
    await face.call("stop", run, grace=0.1)


async def test_bytes_that_are_no_text_are_refused_by_name(face: Face) -> None:
    for field, command in {
        "command.argv[1]": Command(argv=["echo", "\udc80"]),
        "command.env.A": Command(argv=["echo"], env={"A": "\udcff"}),
        "command.cwd": Command(argv=["echo"], cwd="/\udc80"),
    }.items():
        async with refused(ErrorCode.INVALID_REQUEST) as caught:
            await face.call("start", command)
        assert caught().details["field"] == field


async def test_conflicts_name_what_differs(face: Face) -> None:
    await face.call("start", Command(argv=["true"]), request_id="same")
    async with refused(ErrorCode.IDEMPOTENCY_CONFLICT) as caught:
        await face.call("start", Command(argv=["false"]), request_id="same")
    assert caught().details["fields"] == ["argv"]


async def test_what_can_be_enforced_where_the_service_is(face: Face, sup: Supervisor) -> None:
    assert await face.call("capabilities") == await sup.capabilities()


async def test_reconcile_and_resolve(face: Face) -> None:
    run = await sh(face, "exit 0")
    await face.call("wait", run, timeout=PATIENCE)
    assert (await face.call("reconcile")).changed in ({}, {run: "finished"})
    async with refused(ErrorCode.NOT_RESOLVABLE):
        await face.call("resolve", run)


async def test_a_start_by_socket_is_the_start_in_process(
    face: Face, sup: Supervisor, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Same digests (so the same request id is the same run), same environment, directory and umask."""
    monkeypatch.setenv("DSUP_TEST_INHERITED", "from the caller")
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    monkeypatch.chdir(tmp_path)
    command = Command(
        argv=["sh", "-c", "env; umask; pwd"],
        env={"A": "1"},
        secret_env={"MY_TOKEN": "a secret of some length"},
        inherit_env=["DSUP_TEST_INHERITED", "DSUP_TEST_ABSENT"],
        stdin=b"\x00\xff",
    )
    options = {"limits": Limits(timeout=30, grace=2.5), "completion": "tree", "labels": {"a": "b"}}
    first = await face.call("start", command, request_id="both", **options)
    again = await sup.start(command, request_id="both", **options)  # type: ignore[arg-type]
    assert (again.id, again.admission) == (first.id, "existing")
    inside = await sup.start(command, **options)  # type: ignore[arg-type]
    lines = []
    for run in (first, inside):
        await face.call("wait", run.id, timeout=PATIENCE)
        text = (await output(face, run.id)).decode()
        lines.append(sorted(line for line in text.splitlines() if "RUN_ID" not in line))
    assert lines[0] == lines[1]
    assert "DSUP_TEST_INHERITED=from the caller" in lines[0]
    assert str(tmp_path) in lines[0]


async def test_closing_ends_who_follows_and_who_waits(face: Face) -> None:
    run = await sh(face, "exec sleep 60")
    following = asyncio.ensure_future(_collect(face, run))
    waiting = asyncio.ensure_future(_wait(face, run))
    await asyncio.sleep(0.1)
    await face.close()
    for task in (following, waiting):
        async with refused(ErrorCode.SUPERVISOR_CLOSED):
            await asyncio.wait_for(task, PATIENCE)
    async with refused(ErrorCode.SUPERVISOR_CLOSED):
        await face.call("inspect", run)


async def _collect(face: Face, run: str) -> list[Event]:
    return [event async for event in face.stream("follow", run)]


async def test_many_calls_at_once(face: Face, server: Server) -> None:
    runs = await asyncio.gather(*(sh(face, f"echo {number}") for number in range(16)))
    assert len(set(runs)) == 16
    seen = await asyncio.gather(*(_wait(face, run) for run in runs))
    assert [view.id for view in seen] == list(runs)
    assert all(view.outcome.code == 0 for view in seen)


async def test_a_timeout_of_years(face: Face) -> None:
    """More than poll(2) can be asked for at once."""
    run, years = await sh(face, "read x; exit 3", stdin="open"), 3e8
    assert (await face.call("signal", run, 23, timeout=years)).result == "delivered"
    assert (await face.call("write_stdin", run, b"x\n", timeout=years)).result == "written"
    assert (await face.call("wait", run, timeout=years)).outcome.code == 3
    assert (await face.call("stop", run, grace=years, timeout=years)).result == "already_ended"


async def test_info(face: Face, state_dir: Path) -> None:
    info = await face.call("info")
    assert info.pid == os.getpid()
    assert (info.phase, info.api_versions, info.state_dir) == ("accepting", (1,), str(state_dir))
    assert info.caller["principal"] == "operator"
    assert info.to_dict()["schema"] == "durable-supervisor/info/1"
