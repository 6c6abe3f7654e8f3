"""A daemon that is restarted has its place back; one that stays away is followed by a session."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from durable_supervisor import Command, Observer, RunState
from durable_supervisor.api.election import Terms
from durable_supervisor.api.session import Session
from tests.api.test_takeover import Hosts, reached
from tests.contract.hosts import HostScript
from tests.service.daemons import Service
from tests.support import eventually, eventually_async

PATIENCE = 60.0  # so that a machine under load is no reason for a takeover

# Starts something every now and then, and follows the first of it to its end.
SESSION = """
from durable_supervisor.api.election import Terms
from durable_supervisor.api.session import Session

async with await Session.elect(Terms(STATE, daemon_patience=PATIENCE)) as host:
    run = await host.start(script("echo first >> ledger; until [ -e over ]; do echo on; sleep 0.05; done"))
    following = asyncio.create_task(follow(host, run.id))
    open(REPORT + ".ready", "w").close()
    started = 0
    while not os.path.exists(os.path.join(HERE, "over")):
        await host.start(script(f"echo {started} >> ledger"), request_id=f"{os.getpid()}-{started}")
        started += 1
        await asyncio.sleep(0.05)
    report(role=host.role, started=started, seqs=await following)
    await stay()
"""
FOLLOW = """
async def follow(host, run):
    return [event.seq async for event in host.follow(run)]
"""


@pytest.fixture
def hosts(state_dir: Path) -> Iterator[Hosts]:
    made = Hosts(state_dir)
    yield made
    for host in made.started:
        host.kill()


def sessions(hosts: Hosts, patience: float) -> list[HostScript]:
    """Two applications, both at work."""
    found = [hosts(f"{FOLLOW}\nPATIENCE = {patience}\n{SESSION}") for _ in range(2)]
    for one in found:
        reached(one, "ready")
    return found


def more(hosts: Hosts) -> None:
    """Wait until starts go on."""
    before = len(hosts.ledger())
    eventually(lambda: len(hosts.ledger()) > before + 2, PATIENCE, "nothing is started any more")


def roles(hosts: Hosts, applications: list[HostScript]) -> list[str]:
    """End it all: what they are then.  Each start has run once, each seq has come once."""
    (hosts.state_dir.parent / "over").touch()
    told = [one.facts(60) for one in applications]
    for one in told:
        assert one["seqs"] == list(range(1, one["seqs"][-1] + 1))
    expected = ["first"] * 2 + [str(number) for one in told for number in range(one["started"])]
    eventually(lambda: sorted(hosts.ledger()) == sorted(expected), PATIENCE, "a start was lost, or ran twice")
    return sorted(one["role"] for one in told)


def test_a_daemon_that_is_restarted_is_the_owner_again(hosts: Hosts, state_dir: Path) -> None:
    with Service(state_dir) as daemon:
        applications = sessions(hosts, PATIENCE)
        more(hosts)
        assert daemon.end(signal.SIGTERM) == 0
    for signo in (signal.SIGKILL, signal.SIGTERM):
        with Service(state_dir) as daemon:  # would find the directory in use
            assert daemon.ask("GET", "/v1/info")[1]["kind"] == "daemon"
            more(hosts)
            if signo is signal.SIGTERM:
                assert roles(hosts, applications) == ["client", "client"]
            daemon.end(signo)


def test_one_that_stays_away_is_followed_by_a_session(hosts: Hosts, state_dir: Path) -> None:
    with Service(state_dir) as daemon:
        applications = sessions(hosts, 0.5)
        more(hosts)
        daemon.end(signal.SIGKILL)
    more(hosts)
    assert roles(hosts, applications) == ["client", "owner"]


async def test_meanwhile_runs_are_read_and_stopped(state_dir: Path) -> None:
    with Service(state_dir) as daemon:
        async with await Session.elect(Terms(str(state_dir), daemon_patience=PATIENCE)) as session:
            run = await session.start(Command(argv=["sleep", "300"]))
            daemon.end(signal.SIGKILL)
            await eventually_async(lambda: session._owner.vacant)
            assert (await session.stop(run.id)).confirmed
            async with Observer.open(state_dir) as observer:
                assert (await observer.inspect(run.id)).state is RunState.FINISHED
            assert (await session.wait(run.id)).state is RunState.FINISHED
            assert session.role == "client"
