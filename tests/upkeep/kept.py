"""A directory at rest that holds runs of every kind, to be verified and damaged."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from durable_supervisor import Command, Limits, Supervisor
from tests.contract.hosts import log_of
from tests.gc.aging import age
from tests.support import PATIENCE

LOUD = Command(argv=["sh", "-c", "head -c 600000 /dev/urandom | od -An -tx1; exit 3"])


class Kept:
    """A directory at rest: a run of many segments, a small one, one that never started, a collected one."""

    def __init__(self, state_dir: Path) -> None:
        self.state_dir = state_dir
        self.ids: dict[str, str] = {}

    async def fill(self) -> None:
        async with Supervisor.open(self.state_dir) as sup:
            await self._end(sup, "collected", Command(argv=["true"]))
        age(self.state_dir)
        async with Supervisor.open(self.state_dir) as sup:
            assert (await sup.gc(keep=0, apply=True)).count == 1
            await self._end(sup, "loud", LOUD)
            await self._end(sup, "small", Command(argv=["echo", "hello"]))
            missing = await sup.start(Command(argv=["/no/such/program"]), request_id="missing")
            self.ids["missing"] = missing.id

    async def _end(self, sup: Supervisor, request_id: str, command: Command) -> None:
        run = await sup.start(command, request_id=request_id, limits=Limits(max_stdout_bytes=4 << 20))
        self.ids[request_id] = run.id
        await sup.wait(run.id, timeout=PATIENCE)
        await sup.reconcile()

    def log(self, request_id: str) -> Path:
        return log_of(self.state_dir, self.ids[request_id])

    def segments(self) -> list[Path]:
        """Of the loud run, but for the first."""
        return sorted(self.log("loud").with_suffix(".seg").iterdir())

    def sql(self, *statements: str) -> None:
        """As nobody may who respects the guards."""
        with closing(sqlite3.connect(self.state_dir / "journal.db")) as conn:
            guards = conn.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'").fetchall()
            dropped, made_again = [f"DROP TRIGGER {name}" for name, _ in guards], [sql for _, sql in guards]
            for statement in (*dropped, *statements, *made_again):
                conn.execute(statement)
            conn.commit()
