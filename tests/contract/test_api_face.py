"""The Python face, to the letter."""

from __future__ import annotations

import asyncio
import inspect
import json
import subprocess
import sys
from pathlib import Path

import pytest

import durable_supervisor
from durable_supervisor import (
    Command,
    Event,
    Limits,
    Outcome,
    OutcomeKind,
    Run,
    RunState,
    RunView,
    StopReceipt,
    Supervisor,
)
from durable_supervisor.model.answers import FeedEntry
from tests.contract.hosts import ROOT, host
from tests.contract.runs import Runs
from tests.support import PATIENCE

EXAMPLE = """
from durable_supervisor import Supervisor, Command, Limits

async with Supervisor.open() as sup:
    run = await sup.start(Command(argv=["rg", "TODO", "src"], cwd="/repo"),
                          request_id="scan-17", limits=Limits(timeout=600))
    page = await sup.events(run.id, after=0, limit=100)   # .events .next_after .end
    async for event in sup.follow(run.id, after=page.next_after): ...
    final = await sup.wait(run.id, timeout=30)            # .state .outcome .receipt
report(path=sup.state_dir, run=run.to_dict(), end=page.end, state=final.state.value, receipt=final.receipt,
       outcome=final.outcome.to_dict(), last=locals().get("event", page.events[-1]).to_dict())
"""


def test_the_example_runs_as_written(tmp_path: Path) -> None:
    """Only what it names is provided: a repository, and a program called rg on the PATH."""
    repo, tools = tmp_path / "repo", tmp_path / "bin"
    (repo / "src").mkdir(parents=True)
    (repo / "src" / "a.py").write_text("# TODO: everything\n")
    tools.mkdir()
    (tools / "rg").write_text('#!/bin/sh\nexec grep -rn "$1" "$2"\n')
    (tools / "rg").chmod(0o755)
    facts = host(
        EXAMPLE.replace('"/repo"', repr(str(repo))),
        tmp_path,
        tmp_path,
        env={
            "PATH": f"{tools}:/usr/bin:/bin",
            "XDG_STATE_HOME": str(tmp_path / "state"),
            "DURABLE_SUPERVISOR_STATE_DIR": "",
        },
    )
    assert facts["path"].startswith(str(tmp_path / "state"))
    assert facts["run"]["request_id"] == "scan-17"
    assert facts["run"]["attempt"] == 1
    assert facts["state"] == "finished"
    assert facts["outcome"] == {"kind": "exited", "code": 0, "signal": None}
    assert facts["receipt"]["outcome"] == facts["outcome"]
    assert facts["last"]["kind"] == "run.finished"


async def test_a_page(runs: Runs) -> None:
    run = await runs.sh("echo one; echo two >&2")
    await runs.wait(run)
    page = await runs.sup.events(run.id, after=0, limit=100)
    assert all(isinstance(event, Event) for event in page.events)
    assert (page.next_after, page.end) == (page.events[-1].seq, True)
    first = await runs.sup.events(run.id, limit=1)
    assert (len(first.events), first.next_after, first.end) == (1, 1, False)
    rest = await runs.sup.events(run.id, after=first.next_after, limit=100)
    assert [*first.events, *rest.events] == page.events
    beyond = await runs.sup.events(run.id, after=page.next_after, limit=100)
    assert (beyond.events, beyond.next_after, beyond.end) == ([], page.next_after, True)


async def test_an_event(runs: Runs) -> None:
    run = await runs.sh("printf 'h\\303\\251'; sleep 0.05; printf '\\377' >&2")
    await runs.wait(run)
    events = await runs.events(run)
    for event in events:
        form = event.to_dict()
        assert {"seq", "time", "elapsed", "kind"} <= set(form)
        assert json.loads(json.dumps(form)) == form
    out, err = (one.to_dict() for one in events if one.kind == "output")
    assert (out["stream"], out["offset"], out["text"], "base64" in out) == ("stdout", 0, "hé", False)
    assert (err["stream"], err["offset"], err["base64"]) == ("stderr", 0, "/w==")
    elapsed = [event.elapsed_ns for event in events]
    assert elapsed == sorted(elapsed)


async def test_start_answers_with_the_run(runs: Runs) -> None:
    run = await runs.sup.start(Command(argv=["sh", "-c", "read line"], stdin="open"), request_id="one")
    assert isinstance(run, Run)
    assert (run.state, run.request_id, run.attempt, run.admission) == (RunState.RUNNING, "one", 1, "new")
    assert {"run_id", "state", "request_id", "attempt"} <= set(run.to_dict())
    again = await runs.sup.start(Command(argv=["sh", "-c", "read line"], stdin="open"), request_id="one")
    assert (again.id, again.admission, again.state) == (run.id, "existing", RunState.RUNNING)
    await runs.sup.write_stdin(run.id, b"", eof=True)
    final = await runs.wait(run)
    late = await runs.sup.start(Command(argv=["sh", "-c", "read line"], stdin="open"), request_id="one")
    assert (late.id, late.state) == (run.id, final.state)


async def test_without_a_request_id_each_start_is_a_new_run(runs: Runs) -> None:
    first, second = [await runs.sup.start(Command(argv=["true"])) for _ in range(2)]
    assert first.id != second.id
    assert first.request_id != second.request_id
    await asyncio.gather(runs.wait(first), runs.wait(second))


async def test_the_final_view(runs: Runs) -> None:
    run = await runs.sh("exit 7")
    final = await runs.sup.wait(run.id, timeout=PATIENCE)
    assert isinstance(final, RunView)
    assert final.state is RunState.FINISHED
    assert final.outcome == Outcome(OutcomeKind.EXITED, code=7)
    assert final.receipt is not None
    form = final.to_dict()
    promised = {"run_id", "state", "outcome", "program", "worker", "evidence", "resolution", "retryable"}
    assert promised <= set(form)
    for who in ("program", "worker"):
        identity = form[who]
        assert isinstance(identity, dict)
        assert {"pid", "create_time", "start_ticks", "boot_id"} <= set(identity)
    assert json.loads(json.dumps(form)) == form


async def test_a_signal_and_its_outcome(runs: Runs) -> None:
    run = await runs.sh("echo on; exec sleep 30")
    await runs.printed(run, b"on\n")
    receipt = await runs.sup.signal(run.id, 10)
    assert receipt.op == "signal"
    assert receipt.seq > 0
    final = await runs.wait(run)
    assert final.outcome == Outcome(OutcomeKind.SIGNALED, signal=10)


async def test_stop_answers_when_it_is_over(runs: Runs) -> None:
    run = await runs.sh("echo on; exec sleep 30")
    await runs.printed(run, b"on\n")
    receipt = await runs.sup.stop(run.id, grace=2)
    assert isinstance(receipt, StopReceipt)
    assert receipt.confirmed
    assert receipt.outcome is not None
    assert receipt.outcome.kind is OutcomeKind.CANCELLED
    assert (await runs.sup.inspect(run.id)).state is RunState.FINISHED


async def test_attach_goes_on_where_it_was(runs: Runs) -> None:
    run = await runs.sh("echo one; read line; echo got $line", stdin="open")
    seen: list[Event] = []
    async with runs.sup.attach(run.id) as attached:
        async for event in attached:
            seen.append(event)
            if event.data == b"one\n":
                break
        cursor = attached.cursor
        assert cursor == seen[-1].seq
    async with runs.sup.attach(run.id, after=cursor) as attached:
        await attached.write_stdin(b"it\n")
        seen += [event async for event in attached]
    assert [event.seq for event in seen] == list(range(1, len(seen) + 1))
    assert b"got it\n" in [event.data for event in seen]


async def test_the_feed_tells_every_change_in_order(runs: Runs) -> None:
    first, second = await runs.sh("exit 0"), await runs.sh("exit 1")
    await asyncio.gather(runs.wait(first), runs.wait(second))
    await runs.sup.reconcile()
    entries = list(await runs.sup.feed(limit=1000))
    assert [entry.position for entry in entries] == list(range(1, len(entries) + 1))
    for run in (first, second):
        states = [entry.state for entry in entries if entry.run_id == run.id]
        assert states[-1] is RunState.FINISHED
    paged: list[FeedEntry] = []
    while page := await runs.sup.feed(after=len(paged), limit=1):
        paged += page
    assert paged == entries


@pytest.mark.parametrize(
    "verb",
    [
        "start", "inspect", "list", "events", "follow", "attach", "feed", "stop", "signal", "write_stdin",
        "wait", "resolve", "reconcile", "close", "shutdown", "recover", "open",
    ],
)  # fmt: skip
def test_every_verb_is_there_and_says_what_it_does(verb: str) -> None:
    found = getattr(Supervisor, verb)
    assert inspect.getdoc(found)
    if verb not in ("attach", "open"):
        assert inspect.iscoroutinefunction(found) or inspect.isasyncgenfunction(found)


def test_public_names_have_docstrings_and_load_lazily() -> None:
    for name in durable_supervisor.__all__:
        found = getattr(durable_supervisor, name)
        assert name == "__version__" or inspect.getdoc(found), name
    code = (
        "import sys, durable_supervisor; from durable_supervisor import Command, Limits; "
        "heavy = {'asyncio', 'sqlite3', 'pydantic', 'structlog', 'psutil', 'rich', 'typer'}; "
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        check=True,
    )
    assert done.stdout == b"[]\n"
    with pytest.raises(AttributeError):
        _ = durable_supervisor.nonsense
    with pytest.raises(ImportError):
        from durable_supervisor import nothing  # noqa: F401


async def test_open_can_be_awaited_too(state_dir: Path) -> None:
    sup = await Supervisor.open(state_dir)
    try:
        run = await sup.start(Command(argv=["true"]), limits=Limits(timeout=60))
        assert (await sup.wait(run.id, timeout=PATIENCE)).state is RunState.FINISHED
    finally:
        await sup.close()
    async with Supervisor.open(state_dir) as sup:
        assert len((await sup.list()).runs) == 1


async def test_a_body_that_raises_still_closes(state_dir: Path) -> None:
    started: list[Run] = []

    async def body() -> None:
        async with Supervisor.open(state_dir) as sup:
            started.append(await sup.start(Command(argv=["sh", "-c", "sleep 0.2; exit 3"])))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await body()
    async with Supervisor.open(state_dir, wait=0) as sup:
        final = await sup.wait(started[0].id, timeout=PATIENCE)
        assert final.outcome == Outcome(OutcomeKind.EXITED, code=3)


async def test_commands_say_nothing_secret_about_themselves() -> None:
    command = Command(
        argv=["x"], secret_env={"TOKEN": "hunter2hunter2"}, stdin=b"private-input", secrets=["swordfish1"]
    )
    assert not [word for word in ("hunter2", "private-input", "swordfish") if word in repr(command)]
