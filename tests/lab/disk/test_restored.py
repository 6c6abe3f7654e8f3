"""A journal restored from a backup of any earlier moment, beside the logs of today: no id executes again.

Some of the runs are over, one lives, one was collected, and none of the older journals knows all of them.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from durable_supervisor import Command, RunState, Supervisor
from tests.crash.harness import Ledger, end_all
from tests.gc.aging import age
from tests.lab.disk.verdict import Known, judge
from tests.lab.forms import FULL
from tests.support import PATIENCE

MOMENTS = ("empty", "one is over", "one lives", "one is collected", "today's")
CHOSEN = MOMENTS if FULL else ("empty", "one lives")
CODE = 5


class Restored:
    """A directory with a life, and a copy of its journal of each moment."""

    def __init__(self, folder: Path) -> None:
        self.state = folder / "state"
        self.ledger = Ledger(folder)
        self._copies = folder / "copies"
        self._copies.mkdir()
        self.over = Known("over", self.ledger.program("over", "echo out", CODE))
        self.lives = Known("lives", self.ledger.waiting("lives", CODE))
        self.collected = Known("collected", self.ledger.program("collected", "", CODE))

    @property
    def known(self) -> list[Known]:
        return [self.over, self.lives, self.collected]

    def save(self, moment: str) -> None:
        with (
            closing(sqlite3.connect(self.state / "journal.db")) as here,
            closing(sqlite3.connect(self._copies / moment)) as there,
        ):
            here.backup(there)

    def restore(self, moment: str) -> None:
        for path in self.state.glob("journal.db*"):
            path.unlink()
        (self.state / "journal.db").write_bytes((self._copies / moment).read_bytes())
        (self.state / "journal.db").chmod(0o600)

    async def live(self) -> None:
        async with Supervisor.open(self.state) as sup:
            self.save("empty")
            collected = await sup.start(Command(argv=self.collected.argv), request_id="collected")
            await sup.wait(collected.id, timeout=PATIENCE)
            await sup.reconcile()
            self.save("one is over")
            await sup.start(Command(argv=self.lives.argv), request_id="lives")
            self.save("one lives")
        age(self.state)
        async with Supervisor.open(self.state) as sup:
            assert (await sup.gc(keep=0, apply=True)).count == 1
            self.save("one is collected")
            over = await sup.start(Command(argv=self.over.argv), request_id="over")
            await sup.wait(over.id, timeout=PATIENCE)
            await sup.reconcile()
        self.save("today's")


@pytest.mark.parametrize("moment", CHOSEN)
async def test_no_id_executes_again(tmp_path: Path, moment: str) -> None:
    place = Restored(tmp_path)
    try:
        await place.live()
        place.restore(moment)
        told = await judge(place.state, place.ledger, place.known)
        assert told[-3:] == ["finished", "running", "finished"]
        assert (told[0] == "JOURNAL_BEHIND") == (moment != "today's"), told
        place.ledger.open_gate()
        async with Supervisor.open(place.state) as sup:
            [lives] = [run.id for run in (await sup.list()).runs if run.request_id == "lives"]
            seen = await sup.wait(lives, timeout=PATIENCE)
            assert (seen.state, seen.outcome and seen.outcome.code) == (RunState.FINISHED, CODE)
        assert await judge(place.state, place.ledger, place.known) == ["finished"] * 3
        assert [place.ledger.begun(one.request_id) for one in place.known] == [1, 1, 1]
    finally:
        end_all(place.state)
