"""The owner of a shared state directory is killed: the others go on as if nothing had been."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.contract.hosts import HostScript
from tests.support import PATIENCE, eventually

PRELUDE = f"""
import durable_supervisor
PATIENCE = {PATIENCE}  # each may have to load all it needs while the others do
HERE = os.path.dirname(STATE)
def script(text):
    return Command(argv=["sh", "-c", text], cwd=HERE)
# It goes on until the owner was killed, and then for a while, however long those who follow took to begin.
COUNTING = script(
    "echo ran >> ledger; n=0; left=100; while [ $left -gt 0 ]; do"
    " n=$((n+1)); echo $n; if [ -e killed ]; then left=$((left-1)); fi; sleep 0.02; done"
)
"""

OWNER = """
async with durable_supervisor.open(STATE, wait=PATIENCE) as host:
    run = await host.start(COUNTING, request_id="count")
    report(role=host.role, run=run.id)
    await stay()
"""

SHARER = """
async with durable_supervisor.open(STATE, wait=PATIENCE) as host:
    first, seqs, numbers = host.role, [], []
    run = await host.start(COUNTING, request_id="count")
    waiting = asyncio.create_task(host.wait(run.id))
    async for event in host.follow(run.id):
        seqs.append(event.seq)
        numbers += event.text.split() if event.kind == "output" else []
        if len(numbers) >= 15:
            open(REPORT + ".half", "w").close()
    final = await waiting
    mine = await host.start(script("echo mine >> ledger"))
    await host.wait(mine.id)
    report(first=first, last=host.role, run=run.id, admission=run.admission, seqs=seqs, numbers=numbers,
           state=final.state.value, outcome=final.outcome.to_dict(), mine=mine.id)
    await stay()
"""


IDLE = """
async with durable_supervisor.open(STATE, wait=PATIENCE) as host:
    report(role=host.role)
    await stay()
"""

STARTER = """
async with durable_supervisor.open(STATE, wait=PATIENCE) as host:
    report(role=host.role)
    for n in range(40):
        await host.start(script(f"echo {n} >> ledger"), request_id=f"n-{n}")
    open(REPORT + ".done", "w").close()
    await stay()
"""


class Hosts:
    """Applications on one state directory, which are killed at the end."""

    def __init__(self, state_dir: Path) -> None:
        self.state_dir = state_dir
        self.started: list[HostScript] = []

    def __call__(self, code: str) -> HostScript:
        folder = self.state_dir.parent
        made = HostScript(code, self.state_dir, folder, before=PRELUDE)
        self.started.append(made)
        return made

    def ledger(self) -> list[str]:
        """What the programs wrote when they really ran."""
        path = self.state_dir.parent / "ledger"
        return path.read_text().split() if path.exists() else []


@pytest.fixture
def hosts(state_dir: Path) -> Iterator[Hosts]:
    made = Hosts(state_dir)
    yield made
    for host in made.started:
        host.kill()


def reached(host: HostScript, mark: str) -> None:
    """Wait until it has left this mark."""
    path = Path(f"{host.report_path}.{mark}")

    def there() -> bool:
        assert host.process.poll() is None, host.errors()
        return path.exists()

    eventually(there, PATIENCE, f"no {mark}: {host.errors()}")


def test_the_owner_is_killed_under_four_sessions_that_follow(hosts: Hosts) -> None:
    owner = hosts(OWNER)
    facts = owner.facts()
    assert facts["role"] == "owner"
    sharers = [hosts(SHARER) for _ in range(4)]
    for sharer in sharers:
        reached(sharer, "half")
    owner.kill()
    (hosts.state_dir.parent / "killed").touch()

    reports: list[dict[str, Any]] = [sharer.facts() for sharer in sharers]
    for told in reports:
        assert told["first"] == "client"
        assert (told["run"], told["admission"]) == (facts["run"], "existing")
        assert told["seqs"] == list(range(1, told["seqs"][-1] + 1)), "a gap or a duplicate"
        assert told["numbers"] == [str(n) for n in range(1, len(told["numbers"]) + 1)]
        assert (told["state"], told["outcome"]["kind"], told["outcome"]["code"]) == ("finished", "exited", 0)
    assert len({tuple(told["seqs"]) for told in reports}) == 1
    assert len({len(told["numbers"]) for told in reports}) == 1
    assert sorted(told["last"] for told in reports) == ["client", "client", "client", "owner"]
    assert len({told["mine"] for told in reports}) == 4
    assert sorted(hosts.ledger()) == ["mine"] * 4 + ["ran"], "started twice"


def test_starts_go_on_while_one_owner_after_the_other_is_killed(hosts: Hosts) -> None:
    """Two start the same forty things."""
    first = hosts(IDLE)
    assert first.facts()["role"] == "owner"
    second = hosts(IDLE)
    assert second.facts()["role"] == "client"
    starters = [hosts(STARTER) for _ in range(2)]
    for victim, seen in ((first, 5), (second, 20)):
        eventually(lambda seen=seen: len(hosts.ledger()) >= seen)  # type: ignore[misc]
        victim.kill()
    for starter in starters:
        reached(starter, "done")
    eventually(lambda: len(hosts.ledger()) == 40)
    assert sorted(map(int, hosts.ledger())) == list(range(40)), "started twice"
