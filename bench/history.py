"""State directories with a long past, made through the product's own journal and log functions.

100,000 real spawns would take half an hour; what reading and opening meet on the
disk is the same: a journal row with its attempt and feed entries, and a log with a
header and the five records of a short run, all in their places.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path

from durable_supervisor import Command, Supervisor
from durable_supervisor.journal import runs
from durable_supervisor.journal.connection import Journal
from durable_supervisor.journal.rows import Intent
from durable_supervisor.model.enforcement import unconfined
from durable_supervisor.model.events import Kind
from durable_supervisor.model.ids import new_run_id
from durable_supervisor.model.outcome import natural
from durable_supervisor.model.request import Queueing, StartRequest
from durable_supervisor.model.states import RunState, Trigger
from durable_supervisor.process.clock import Clock, boot_id
from durable_supervisor.process.identity import self_identity
from durable_supervisor.process.usage import Usage
from durable_supervisor.runlog.bounds import segment_size
from durable_supervisor.runlog.create import create_log
from durable_supervisor.runlog.format import EVENT, SegmentHeader, encode_json, encode_record, salt_of
from durable_supervisor.runlog.paths import RunPaths, shard_of
from durable_supervisor.runlog.writer import LogWriter
from durable_supervisor.supervisor.admission.admission import Place, Prepared
from durable_supervisor.supervisor.admission.host import read_host
from durable_supervisor.worker.ending import make_receipt

from .baselines import TRUE

_ROWS_AT_ONCE = 1000
_SECOND = 1_000_000_000
Detail = dict[str, object]


class Past:
    """Writes finished runs into a state directory that no supervisor owns meanwhile."""

    def __init__(self, state: Path, directory_id: str, key: bytes) -> None:
        self._state = state
        self._directory_id = directory_id
        self._key = key
        self._command = Command(argv=[TRUE])
        self._host = read_host(self._command)
        self._clock = Clock()
        self._boot = boot_id()
        self._me: Detail = self_identity().to_dict()
        self._serial = 0

    @classmethod
    async def begin(cls, state: Path) -> Past:
        """A new directory, made and named by the supervisor itself."""
        sup = await Supervisor.open(state)
        ident = sup._identity
        await sup.close()
        return cls(state, ident.directory_id, ident.key)

    async def add_short_runs(self, count: int) -> list[str]:
        """``count`` finished runs of ``true``; their ids, oldest first."""
        ids: list[str] = []
        async with await Journal.open(self._state / "journal.db") as journal:
            while len(ids) < count:
                made = [self._short_run() for _ in range(min(_ROWS_AT_ONCE, count - len(ids)))]
                await journal.write(self._settle(made))
                ids += [intent.run_id for intent, _ in made]
        return ids

    async def add_long_run(self, events: int, size: int) -> str:
        """One finished run whose log has ``events`` output events of ``size`` bytes."""
        prepared, place = self._prepare()
        header = self._header(prepared, place)
        paths = self._paths(place)
        log = LogWriter(
            create_log(paths, header),
            paths,
            header,
            segment_bytes=segment_size(1 << 40, 1 << 40),
            stdout_cap=1 << 40,
            stderr_cap=1 << 40,
            truncate=True,
            clock=self._clock,
        )
        *first, last = self._events()
        for kind, detail in first[:3]:
            log.append(kind, detail)
        line = b"%%0%dd\n" % (size - 1)
        for number in range(events):
            log.append_output("stdout", line % number)
        log.append(*first[3])
        log.finish(*last)
        log.close()
        made = [(self._intent(prepared, place), last[1])]
        async with await Journal.open(self._state / "journal.db") as journal:
            await journal.write(self._settle(made))
        return place.run_id

    def _short_run(self) -> tuple[Intent, Detail]:
        prepared, place = self._prepare()
        events = self._events()
        fd = create_log(self._paths(place), self._header(prepared, place))
        try:
            os.write(fd, _records(place, os.fstat(fd).st_size, events, self._clock.wall_ns()))
        finally:
            os.close(fd)
        return self._intent(prepared, place), events[-1][1]

    def _settle(self, made: Sequence[tuple[Intent, Detail]]) -> Callable[[sqlite3.Connection], None]:
        def work(conn: sqlite3.Connection) -> None:
            for intent, receipt in made:
                runs.admit(conn, intent)
                runs.transition(
                    conn, intent.run_id, Trigger.FINISH, RunState.STARTING, intent.now_ns + 1,
                    outcome=natural(0, None), receipt=receipt, worker=self._me, program=self._me,
                )  # fmt: skip

        return work

    def _prepare(self) -> tuple[Prepared, Place]:
        self._serial += 1
        request = StartRequest(command=self._command, request_id=f"past-{self._serial}")
        place = Place(new_run_id(os.urandom), self._serial, shard_of(self._serial), 1, 1)
        return Prepared(request, self._host, self._key, Queueing()), place

    def _header(self, prepared: Prepared, place: Place) -> SegmentHeader:
        return prepared.header(place, self._directory_id, self._boot, self._clock.wall_ns())

    def _intent(self, prepared: Prepared, place: Place) -> Intent:
        return prepared.intent(place, self._boot, self._clock.wall_ns())

    def _paths(self, place: Place) -> RunPaths:
        return RunPaths(str(self._state / "runs"), place.shard, place.run_id)

    def _events(self) -> list[tuple[str, Detail]]:
        now = self._clock.wall_ns()
        nothing: Detail = {"bytes": 0, "dropped": 0, "complete": True}
        receipt = make_receipt(
            attempt=1, outcome=natural(0, None), usage=Usage(), started_ns=now - _SECOND, finished_ns=now,
            duration_ns=_SECOND, output={"stdout": nothing, "stderr": nothing}, stdin_bytes=0, survivors=[],
            stop=None, cleanup_confirmed=True, run_id="0" * 16, executable=None,
            enforcement=unconfined(),
        )  # fmt: skip
        return [
            (Kind.RUN_DISPATCHED, {"attempt": 1, "identity": self._me, "argv": [TRUE], "cwd": "/"}),
            (Kind.PROGRAM_SPAWNED, {"identity": self._me, "requested": TRUE, "canonical": TRUE}),
            (Kind.PROGRAM_RELEASED, {}),
            (Kind.PROGRAM_EXITED, {"code": 0, "signal": None}),
            (Kind.RUN_FINISHED, receipt),
        ]


def _records(place: Place, offset: int, events: Sequence[tuple[str, Detail]], wall_ns: int) -> bytes:
    salt = salt_of(place.run_id, place.attempt, 0)
    data = b""
    for seq, (kind, detail) in enumerate(events, 1):
        meta = encode_json({"kind": kind, "detail": detail})
        data += encode_record(salt, offset + len(data), EVENT, 0, seq, wall_ns, seq, meta, b"")
    return data
