"""One state directory with its ledger, and the check of the guarantees after something died in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from durable_supervisor import Command, Event, Limits, Observer, RunState, Supervisor, SupervisorError
from durable_supervisor.journal import feed, runs
from durable_supervisor.journal.listing import list_runs
from durable_supervisor.journal.reader import JournalReader
from durable_supervisor.model.errors import ErrorCode
from durable_supervisor.model.events import Kind
from durable_supervisor.model.identity import ProcessIdentity
from durable_supervisor.model.states import OPEN_STATES, SETTLED_STATES
from durable_supervisor.model.view import RunView
from durable_supervisor.process.identity import Liveness, probe
from tests.crash.harness import Host, Ledger, assert_nothing_left, end_all
from tests.support import eventually_async

LOST = (RunState.UNKNOWN, RunState.QUARANTINED)


@dataclass
class World:
    """``argv`` and ``options`` are the request that ``r-1`` stands for."""

    state_dir: Path
    ledger: Ledger
    argv: list[str] = field(default_factory=list)
    options: dict[str, Any] = field(default_factory=dict)
    request_id: str = "r-1"

    def host(self, failpoints: str = "", mode: str = "") -> Host:
        return Host(self.state_dir, failpoints, mode=mode)

    @property
    def journal(self) -> Path:
        return self.state_dir / "journal.db"

    async def send(self, sup: Supervisor, **changes: Any) -> Any:
        """The request, once more."""
        values = {"argv": self.argv, **self.options, **changes}
        limits = Limits(**values.pop("limits", {}))
        if "stdin" in values:
            values["stdin"] = values["stdin"].encode()
        chosen = {name: values.pop(name) for name in ("completion", "lifetime") if name in values}
        return await sup.start(Command(**values), request_id=self.request_id, limits=limits, **chosen)

    async def find(self, sup: Supervisor) -> RunView | None:
        """The run of the request, as a reader sees it."""
        page = await sup.list(limit=1000)
        found = [run for run in page.runs if run.request_id == self.request_id]
        assert len(found) <= 1
        return await sup.inspect(found[0].id) if found else None


async def settle(sup: Supervisor, run_id: str, *, kill: bool = False) -> list[RunView]:
    """Judge until it is settled; every different view on the way.  ``kill``: end what is left of it."""
    seen: list[RunView] = []

    async def look() -> bool:
        await sup.reconcile()
        view = await sup.inspect(run_id)
        if not seen or seen[-1].state is not view.state:
            seen.append(view)
        if view.state is RunState.QUARANTINED and (kill or not _may_change(view)):
            await sup.resolve(run_id, "kill" if view.program else "accept")
        return view.state in SETTLED_STATES

    await eventually_async(look, timeout=60, message="it never settled")
    return seen


def _may_change(view: RunView) -> bool:
    """Is there a process whose end would let evidence settle it?"""
    known = [ProcessIdentity.from_dict(one) for one in (view.program, view.worker) if one]
    return any(probe(one) is not Liveness.GONE for one in known)


async def check_guarantees(
    world: World,
    expected: Sequence[str],
    *,
    kill: bool = False,
    leaves: bool = False,
    exit_code: int = 5,
) -> RunView | None:
    """Reopen, let it settle, and hold what is found against the ledger.

    ``expected`` are the states that it may settle in (``absent``: the request was never
    accepted).  ``leaves``: descendants of the program may live on, which the receipt
    must not deny.  Returns how it settled before the request was sent again.
    """
    journal_came_first(world)
    async with Supervisor.open(world.state_dir) as sup:
        found = await world.find(sup)
        if found is None:
            assert "absent" in expected, expected
            assert not world.ledger.begun(world.request_id)
        else:
            views = await settle(sup, found.id, kill=kill)
            found = views[-1]
            assert found.state.value in expected, (found.state, found.reason, expected, found.evidence)
            for view in views:
                no_guess(world, view, exit_code)
        await send_again(world, sup, found, exit_code)
        for run in (await sup.list(limit=1000)).runs:
            await gapless(sup, run.id)
        await sup.reconcile()  # what readers have seen by now is folded
    before = facts(world.state_dir)
    async with Supervisor.open(world.state_dir) as sup:
        assert (await sup.reconcile()).changed == {}
    now = facts(world.state_dir)
    assert now.keys() == before.keys()
    for name, value in before.items():
        assert now[name] == value, name
    if leaves:
        assert found is not None
        assert found.receipt is not None
        assert (found.receipt["incomplete"], found.receipt["cleanup_confirmed"]) == (True, False)
        end_all(world.state_dir)
    assert_nothing_left(world.state_dir)
    return found


def journal_came_first(world: World) -> None:
    """Whatever was executed has its row, and its log says who it is and that it might run."""
    executed = {line[1] for line in world.ledger.lines()}
    if not executed or not world.journal.exists():
        return
    with JournalReader.open(str(world.journal)) as journal:
        for request_id in executed:
            assert journal.read(lambda conn, name=request_id: runs.find_request(conn, "local", name))  # type: ignore[misc]


def no_guess(world: World, view: RunView, exit_code: int) -> None:
    """What is told of a run is what its own program wrote down, or that it is not known."""
    begun, ended = world.ledger.begun(view.request_id), world.ledger.ended(view.request_id)
    assert begun <= 1
    if view.state is RunState.FINISHED:
        assert view.outcome is not None
        assert view.receipt is not None
        if view.outcome.code is not None:
            assert (begun, ended) == (1, view.outcome.code)
            assert view.outcome.code == exit_code
        else:
            assert view.outcome.signal is not None
            assert ended is None
    elif view.state is RunState.NOT_STARTED:
        assert begun == 0
        assert view.outcome is None
    elif view.state in LOST:
        assert not view.retryable
        assert view.reason
        assert view.evidence
        assert view.outcome is None
    if view.state in SETTLED_STATES - {RunState.NOT_STARTED}:
        assert not view.retryable


async def send_again(world: World, sup: Supervisor, found: RunView | None, exit_code: int) -> None:
    """The same request once more: the same run, and never a second execution."""
    may_run = found is None or (found.state is RunState.NOT_STARTED and found.retryable)
    before = world.ledger.begun(world.request_id)
    again = await world.send(sup)
    if found is not None:
        assert again.id == found.id
    if may_run:
        assert before == 0
        assert again.attempt == (1 if found is None else found.attempt + 1)
        world.ledger.open_gate()
        final = (await settle(sup, again.id, kill=True))[-1]
        assert final.state is RunState.FINISHED, (final.state, final.reason)
        assert world.ledger.begun(world.request_id) == 1
        assert final.outcome is not None
        assert final.outcome.code in (exit_code, None)
    else:
        assert found is not None
        assert (again.admission, again.attempt, again.state) == ("existing", found.attempt, found.state)
        assert world.ledger.begun(world.request_id) == before
    with pytest.raises(SupervisorError) as caught:
        await world.send(sup, argv=["true", "other"])
    assert caught.value.code is ErrorCode.IDEMPOTENCY_CONFLICT


async def gapless(sup: Supervisor, run_id: str) -> list[Event]:
    """All events of a run; the same list at every page size, each seq answered once."""
    whole = await read_all(sup, run_id, 1000)
    assert whole == await read_all(sup, run_id, 7)
    if len(whole) < 50:
        assert whole == await read_all(sup, run_id, 1)
    expected = 1
    for event in whole:
        first = event.detail.get("first_seq", event.seq) if event.kind == Kind.OUTPUT_DROPPED else event.seq
        assert first == expected, (first, expected, event)
        expected = event.seq + 1
    view = await sup.inspect(run_id)
    assert view.state in OPEN_STATES or view.head == expected - 1
    return whole


async def read_all(sup: Observer, run_id: str, limit: int) -> list[Event]:
    events: list[Event] = []
    after = 0
    while True:
        page = await sup.events(run_id, after=after, limit=limit)
        events += page.events
        if page.next_after == after:
            return events
        after = page.next_after


def facts(state_dir: Path) -> dict[str, Any]:
    """Everything that the journal and the logs say, to be compared."""
    with JournalReader.open(str(state_dir / "journal.db")) as journal:
        rows = journal.read(lambda conn: list_runs(conn, limit=10_000))
        entries = journal.read(lambda conn: feed.feed(conn, 0, 10_000))
    sizes = {str(path): path.stat().st_size for path in state_dir.glob("runs/**/*.log") if path.is_file()}
    found: dict[str, Any] = {row.run_id: row for row in rows}
    return {**found, **sizes, "feed": list(entries)}


def requests(world: World, count: int) -> list[World]:
    """Worlds in the same directory, each with a request of its own that goes on until the gate opens."""
    found = []
    for number in range(1, count + 1):
        request_id = f"r-{number}"
        argv = world.ledger.waiting(request_id)
        found.append(World(world.state_dir, world.ledger, argv, request_id=request_id))
    return found


def start_all(host: Host, worlds: list[World]) -> list[str]:
    return [host.start(one.argv, one.request_id) for one in worlds]
