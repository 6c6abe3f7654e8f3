"""One session: the verbs as an owner and as a client, beside other faces; a good guest."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

import pytest
import pytest_asyncio

import durable_supervisor
from durable_supervisor import AsyncClient, Client, Command, ErrorCode, Event, Session, SupervisorError
from tests.contract.hosts import host as run_host
from tests.contract.hosts import refused
from tests.support import PATIENCE, eventually_async


@pytest_asyncio.fixture
async def owner(state_dir: Path) -> AsyncIterator[Session]:
    async with durable_supervisor.open(state_dir) as opened:
        assert opened.role == "owner"
        yield opened


@pytest_asyncio.fixture
async def client(owner: Session, state_dir: Path) -> AsyncIterator[Session]:
    async with durable_supervisor.open(state_dir) as opened:
        assert opened.role == "client"
        yield opened


@pytest.fixture(params=["owner", "client"])
def session(request: pytest.FixtureRequest, owner: Session, client: Session) -> Session:
    return owner if request.param == "owner" else client


async def test_capacity_is_the_owner_s(session: Session) -> None:
    run = await session.start(Command(argv=["sleep", "300"]))
    assert (await session.capacity()).held == 1
    await session.stop(run.id, grace=0)


async def test_a_whole_life(session: Session) -> None:
    command = Command(argv=["sh", "-c", "read line; echo got $line; exec sleep 300"], stdin="open")
    run = await session.start(command, request_id="life", labels={"team": "infra"})
    again = await session.start(command, request_id="life", labels={"team": "infra"})
    assert (run.admission, again.admission, again.id) == ("new", "existing", run.id)
    await session.write_stdin(run.id, b"it\n")
    async with aclosing(session.follow(run.id)) as events:
        seen = await anext(event async for event in events if event.kind == "output")
    assert seen.data == b"got it\n"
    assert [one.id for one in (await session.list(label=("team", "infra"))).runs] == [run.id]
    assert await session.find(run.id[:10]) == run.id
    waiting = asyncio.create_task(session.wait(run.id))
    receipt = await session.stop(run.id)
    assert receipt.confirmed
    assert (await waiting).state.value == "finished"
    assert (await session.events(run.id)).events[-1].kind == "run.finished"

    async def noted() -> bool:
        return [entry.state.value for entry in await session.feed()][-1] == "finished"

    await eventually_async(noted)
    assert (await session.reconcile()).judged == 0
    async with refused(ErrorCode.NOT_RESOLVABLE):
        await session.resolve(run.id)
    async with refused(ErrorCode.UNKNOWN_RUN):
        await session.stop("nosuch")
    async with refused(ErrorCode.INVALID_REQUEST):
        await session.start(Command(argv=["true"]), request_id="a b")


async def test_an_attachment_outlives_the_owner(owner: Session, client: Session) -> None:
    """Its line and its lease go to the worker, not through whoever owns the directory."""
    run = await client.start(Command(argv=["cat"], stdin="open"))
    async with client.attach(run.id) as attached:
        assert await attached.lease()
        await owner.close()
        await eventually_async(lambda: client.role == "owner")
        await attached.write_stdin(b"still here\n", eof=True)
        assert attached.holds_lease
        events: list[Event] = [event async for event in attached]
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert b"still here\n" in [event.data for event in events]


async def test_a_queued_run_starts_under_the_next_owner(state_dir: Path) -> None:
    first = await durable_supervisor.open(state_dir, max_concurrent_runs=1)
    async with durable_supervisor.open(state_dir, max_concurrent_runs=1) as second:
        holder = await second.start(Command(argv=["cat"], stdin="open"))
        waits = await second.start(Command(argv=["true"]), queue=True)
        assert waits.state.value == "queued"
        await first.close()
        await second.write_stdin(holder.id, b"", eof=True)
        assert (await second.wait(waits.id, timeout=PATIENCE)).state.value == "finished"
        assert second.role == "owner"


async def test_closing_does_not_wait_for_those_who_wait(owner: Session, state_dir: Path) -> None:
    """Clients are told to look for another owner; their runs and waits are their own."""
    run = await owner.start(Command(argv=["sleep", "300"]))
    client = await durable_supervisor.connect(state_dir)
    waiting = asyncio.create_task(client.wait(run.id))
    stopped = asyncio.create_task(owner.wait(run.id))
    events = client.follow(run.id, after=2)
    assert (await anext(events)).seq == 3, "it follows, and those who wait have asked before"
    following = asyncio.create_task(anext(events))
    loop = asyncio.get_running_loop()
    began = loop.time()
    await owner.close()
    assert loop.time() - began < PATIENCE
    async with refused(ErrorCode.SUPERVISOR_CLOSED):
        await stopped
    async with durable_supervisor.open(state_dir) as other:
        await other.stop(run.id)
        assert (await waiting).state.value == "finished"
        assert (await following).seq == 4
    await client.close()


async def test_client_and_asyncclient_work_beside(owner: Session, state_dir: Path) -> None:
    def in_a_thread() -> str:
        with Client.connect(state_dir) as client:
            run = client.start(Command(argv=["echo", "hi"]))
            assert client.wait(run.id).outcome is not None
            return run.id

    run_id = await asyncio.to_thread(in_a_thread)
    async with durable_supervisor.connect(state_dir) as client:
        assert isinstance(client, AsyncClient)
        assert (await client.inspect(run_id)).state.value == "finished"
    async with durable_supervisor.connect(socket=state_dir / "supervisor.sock") as client:
        assert (await client.list()).runs[0].id == run_id


async def test_connect_never_owns(state_dir: Path) -> None:
    with pytest.raises(SupervisorError) as caught:
        await durable_supervisor.connect(state_dir)
    assert caught.value.code is ErrorCode.SERVICE_UNAVAILABLE
    assert list(state_dir.iterdir()) == []


def test_a_guest_that_serves_changes_nothing_of_its_host(tmp_path: Path, state_dir: Path) -> None:
    code = """
    import durable_supervisor, logging
    def settings():
        return [[id(signal.getsignal(n)) for n in signal.valid_signals()], os.umask(0o027),
                str(logging.root.handlers), logging.root.level]
    os.umask(0o027)
    before = settings()
    async with durable_supervisor.open(STATE, serve=True) as host:
        run = await host.start(Command(argv=["true"]))
        await host.wait(run.id)
        async with durable_supervisor.connect(STATE) as client:
            await client.inspect(run.id)
        during = settings()
    report(same=before == during == settings())
    """
    assert run_host(code, state_dir, tmp_path)["same"]
    assert not list(state_dir.glob("supervisor.s*k*"))


def test_a_forked_copy_is_refused_and_harms_nothing(tmp_path: Path, state_dir: Path) -> None:
    code = """
    import durable_supervisor
    async with durable_supervisor.open(STATE, serve=True) as host, durable_supervisor.open(STATE) as other:
        read, write = os.pipe()
        if (pid := os.fork()) == 0:
            told = []
            for one in (host, other):
                for call in (one.start(Command(argv=["true"])), one.list(), one.close()):
                    try:
                        call.send(None)
                    except SupervisorError as error:
                        told.append(error.code.value)
                    except StopIteration:
                        told.append("nothing")
            os.write(write, json.dumps(told).encode())
            os._exit(0)
        os.close(write)
        told = json.loads(os.read(read, 4096))
        os.waitpid(pid, 0)
        run = await other.start(Command(argv=["true"]))
        final = await host.wait(run.id)
        report(told=told, state=final.state.value, roles=[host.role, other.role])
    """
    facts = run_host(code, state_dir, tmp_path)
    assert facts["told"] == ["FORKED_COPY", "FORKED_COPY", "nothing"] * 2
    assert (facts["state"], facts["roles"]) == ("finished", ["owner", "client"])


@pytest.mark.parametrize("missing", ["aiohttp", "prometheus_client"])
def test_without_what_a_service_needs_it_owns_and_serves_nobody(
    tmp_path: Path, state_dir: Path, missing: str
) -> None:
    code = f"""
    sys.modules["{missing}"] = None  # as if it were not installed
    import durable_supervisor
    async with durable_supervisor.open(STATE) as host:
        role, served = host.role, os.path.exists(STATE + "/supervisor.sock")
    try:
        async with durable_supervisor.open(STATE, serve=True):
            told = None
    except SupervisorError as error:
        told = error.to_dict()
    async with durable_supervisor.open(STATE, wait=0) as host:
        report(role=role, served=served, told=told)
    """
    facts = run_host(code, state_dir, tmp_path)
    assert (facts["role"], facts["served"]) == ("owner", False)
    assert facts["told"]["code"] == "EXTRA_MISSING"
    assert facts["told"]["details"] == {"extra": "daemon", "library": missing}
