"""Stop, signal, stdin and resize: each with its receipt, each refused for the same reasons."""

from __future__ import annotations

import signal
from contextlib import aclosing
from typing import Any

from durable_supervisor import ErrorCode, Kind, Phase, RunState, Terminal
from tests.contract.runs import Marker, appear, gone
from tests.faces.face import Face, refusing

# One in the session of its leader, one in its own, one that is nobody's child any more.
TREE = "sleep {m} & setsid sleep {m} & (setsid sleep {m} &) ; wait"


async def test_stop_ends_the_whole_tree(face: Face, marker: Marker) -> None:
    run = await face.sh(TREE.format(m=marker))
    appear(marker, 4)
    receipt = await face.sup.stop(run.id)
    gone(marker)
    assert (receipt.run_id, receipt.state, receipt.result) == (run.id, RunState.FINISHED, "stopping")
    assert receipt.confirmed
    assert receipt.control_id is not None
    assert receipt.outcome is not None
    assert (receipt.outcome.kind, receipt.outcome.signal) == ("cancelled", signal.SIGTERM)
    again = await face.sup.stop(run.id)
    assert (again.result, again.confirmed, again.control_id) == ("already_ended", True, None)
    assert again.outcome == receipt.outcome
    asked = [one for one in await face.events(run) if one.kind == Kind.CONTROL_RECEIVED]
    assert [one.detail["id"] for one in asked] == [receipt.control_id]


async def test_who_does_not_listen_is_killed_after_the_grace(face: Face, marker: Marker) -> None:
    run = await face.sh(f"trap '' TERM; echo on; while :; do sleep {marker}; done")
    await face.printed(run, b"on\n")
    receipt = await face.sup.stop(run.id, grace=0.2)
    gone(marker)
    assert receipt.outcome is not None
    assert (receipt.outcome.kind, receipt.outcome.signal) == ("cancelled", signal.SIGKILL)


async def test_signals_reach_the_leader_or_the_tree(face: Face) -> None:
    child = "trap 'echo child; exit' USR1; while :; do sleep 0.02; done"
    run = await face.sh(f"trap 'echo leader' USR1; sh -c \"echo on; {child}\" & while :; do sleep 0.02; done")
    await face.printed(run, b"on\n")
    receipt = await face.sup.signal(run.id, signal.SIGUSR1)
    assert (receipt.run_id, receipt.op, receipt.detail["signal"]) == (run.id, "signal", signal.SIGUSR1)
    assert len(receipt.detail["pids"]) == 1  # type: ignore[arg-type]
    await face.printed(run, b"leader\n")
    assert b"child" not in await face.output(run)
    receipt = await face.sup.signal(run.id, signal.SIGUSR1, target="tree")
    assert len(receipt.detail["pids"]) >= 2  # type: ignore[arg-type]
    await face.printed(run, b"child\n")
    applied = [one for one in await face.events(run) if one.kind == Kind.CONTROL_APPLIED][-1]
    assert (applied.detail["id"], applied.seq) == (receipt.control_id, receipt.seq)
    await face.sup.stop(run.id, grace=0.1)


async def test_every_write_has_its_receipt(face: Face) -> None:
    run = await face.start(["cat"], stdin="open")
    pieces = [b"one\n", b"\xff\x00\xfe", b"x" * 100_000]
    for piece in pieces:
        receipt = await face.sup.write_stdin(run.id, piece)
        assert (receipt.op, receipt.result, receipt.detail["bytes"]) == ("stdin", "written", len(piece))
    closed = await face.sup.write_stdin(run.id, b"", eof=True)
    assert (closed.op, closed.result) == ("close_stdin", "closed")
    seen = await face.wait(run)
    assert (seen.receipt or {})["stdin_bytes"] == sum(map(len, pieces))
    assert await face.output(run) == b"".join(pieces)


async def test_a_stdin_takes_no_more_than_its_bound(face: Face) -> None:
    """A write is taken whole or not at all, also one that goes in pieces."""
    bound = 3 << 20
    run = await face.start(["wc", "-c"], stdin="open", max_stdin_bytes=bound)
    await face.sup.write_stdin(run.id, b"first")
    for size in (bound, bound - 4):
        async with refusing(ErrorCode.INVALID_REQUEST, Phase.VALIDATE, {"field": "data", "confirmed": 0}):
            await face.sup.write_stdin(run.id, bytes(size))
    await face.sup.write_stdin(run.id, bytes(bound - 5))
    async with refusing(ErrorCode.INVALID_REQUEST, Phase.VALIDATE, {"field": "data", "confirmed": 0}):
        await face.sup.write_stdin(run.id, b"x")
    await face.sup.write_stdin(run.id, b"", eof=True)
    seen = await face.wait(run)
    assert (seen.receipt or {})["stdin_bytes"] == bound
    assert (await face.output(run)).strip() == str(bound).encode()
    async with refusing(ErrorCode.INVALID_REQUEST, Phase.VALIDATE, {"field": "stdin"}):
        await face.start(["cat"], stdin=b"12345", max_stdin_bytes=4)


async def test_a_stdin_that_takes_nothing(face: Face) -> None:
    run = await face.start(["sleep", "60"])
    closed = {"run_id": run.id, "bytes": 0, "confirmed": 0}
    async with refusing(ErrorCode.STDIN_CLOSED, Phase.CONTROL, closed):
        await face.sup.write_stdin(run.id, b"x")
    async with refusing(ErrorCode.INVALID_REQUEST, Phase.VALIDATE, {"field": "run"}):
        await face.sup.resize(run.id, 80, 24)
    await face.sup.stop(run.id)


async def test_controls_of_what_is_over(face: Face) -> None:
    run = await face.start(["true"])
    await face.wait(run)
    over = {"run_id": run.id, "state": "finished"}
    async with refusing(ErrorCode.NOT_RUNNING, Phase.CONTROL, over):
        await face.sup.signal(run.id, signal.SIGTERM)
    async with refusing(ErrorCode.NOT_RUNNING, Phase.CONTROL, over):
        await face.sup.resize(run.id, 80, 24)


async def test_a_run_that_there_is_not(face: Face) -> None:
    nobodys: dict[str, Any] = {"run_id": "0" * 16}
    calls: dict[str, list[Any]] = {
        "inspect": [], "events": [], "wait": [], "stop": [], "resolve": [], "find": [],
        "signal": [15], "resize": [80, 24], "write_stdin": [b"x"],
    }  # fmt: skip
    for verb, args in calls.items():
        details = nobodys | ({"confirmed": 0} if verb == "write_stdin" else {})
        async with refusing(ErrorCode.UNKNOWN_RUN, Phase.READ, details):
            await getattr(face.sup, verb)("0" * 16, *args)


async def test_a_terminal_and_its_size(face: Face) -> None:
    script = "trap 'stty size; exit 0' WINCH; tty >/dev/null && stty size; while :; do sleep 0.02; done"
    run = await face.sh(script, pty=Terminal(columns=90, rows=30))
    await face.printed(run, b"30 90\r\n")
    seen = await face.sup.inspect(run.id)
    assert seen.pty == {"columns": 90, "rows": 30, "term": "xterm-256color"}
    receipt = await face.sup.resize(run.id, 120, 40)
    assert (receipt.op, receipt.result) == ("resize", "resized")
    assert (await face.wait(run)).outcome is not None
    assert await face.output(run) == b"30 90\r\n40 120\r\n"


async def test_what_is_typed_at_a_terminal(face: Face) -> None:
    run = await face.start(["cat"], pty=Terminal())
    await face.sup.write_stdin(run.id, b"hello\n")
    await face.printed(run, b"hello\r\nhello\r\n")
    assert (await face.sup.write_stdin(run.id, b"", eof=True)).result == "eof_sent"
    assert (await face.wait(run)).state is RunState.FINISHED


async def test_a_program_that_waits_for_its_reader(face: Face, marker: Marker) -> None:
    """It is never further ahead than its window, and goes on as it is read."""
    window, size = 8192, 200_000
    argv = ["sh", "-c", f"head -c {size} /dev/zero; exec sleep {marker}"]
    run = await face.ask("window", argv, lifetime="scope", window=window)
    consumed = 0
    async with aclosing(face.sup.follow(run.id, kinds=[Kind.OUTPUT])) as events:
        async for event in events:
            assert event.offset == consumed
            assert len(event.data) <= window
            consumed += len(event.data)
            await face.sup.acknowledge(run.id, stdout=consumed)
            if consumed == size:
                break
    assert (await face.sup.inspect(run.id)).lifetime == "scope"
    await face.sup.stop(run.id)
    await face.sup.acknowledge(run.id, stdout=1)
    async with refusing(ErrorCode.INVALID_REQUEST, Phase.VALIDATE, {"field": "stderr"}):
        await face.sup.acknowledge(run.id, stderr=-1)
    async with refusing(ErrorCode.INVALID_REQUEST, Phase.VALIDATE, {"field": "window"}):
        await face.ask("window-2", ["true"], window=window)
