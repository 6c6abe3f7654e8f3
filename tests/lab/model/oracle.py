"""What must be true when all is over: the product's word against the programs' own books."""

from __future__ import annotations

import asyncio
import copy
import json
import re
import signal
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from durable_supervisor import Event, RunState, RunView, Supervisor, SupervisorError
from durable_supervisor.journal import meta
from durable_supervisor.journal.reader import JournalReader
from durable_supervisor.model.events import TERMINAL_KINDS, Kind
from durable_supervisor.model.states import SETTLED_STATES, TRANSITIONS, Trigger
from durable_supervisor.process.locks import LockState, probe_lock
from durable_supervisor.sandbox.resources import cgroups, run_cgroups
from durable_supervisor.upkeep.verify import verify
from tests.crash.world import gapless
from tests.lab.model import foreign
from tests.lab.model.actions import COPY
from tests.lab.model.actors import Actor, mark
from tests.lab.model.books import Book
from tests.lab.model.driver import Driver, Follower, Request

# What may be in a directory that nobody owns.
KEPT = {
    "supervisor.lock", "supervisor.owner", "supervisor.sock", "service.json", "key", "journal.db", "runs",
    "imported",
}  # fmt: skip
SET_ASIDE = re.compile(r"\d{16}\.log\.g\d+")  # without one good record, see `runlog.repair`
BEGINNINGS = (Kind.RUN_QUEUED, Kind.RUN_DISPATCHED)  # of an attempt
SHELLS = (b"Terminated\n", b"Killed\n", b"User defined signal 1\n", b"Hangup\n")


class Oracle:
    """Reads everything anew; raises AssertionError at the first untruth."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._unexplained: list[str] = []
        self._quarantined: set[str] = set()  # run ids, of any time

    async def judge(self) -> None:
        """Once, then what was sent is sent again, and once more from the beginning: nothing has moved."""
        async with Supervisor.open(self._driver.state) as sup:
            report = await sup.reconcile()
            assert report.changed == {}, report
            views = await self._views(sup)
            await self._feed(sup, views)
            for request in self._driver.requests.values():
                self._of_request(request, views.get(request.id))
            for view in views.values():
                await self._of_run(sup, view)
            for request in self._driver.requests.values():
                await self._again(sup, request, views.get(request.id))
        for path in sorted(self._driver.folder.glob(f"{COPY}*")):
            await self._copy(path, views)
        deaths = self._driver.herd.deaths_at_points()
        assert len(self._unexplained) <= len(deaths), ("lost without a cause", self._unexplained, deaths)
        found = [one for one in (await verify(self._driver.state)).findings if one.severity != "note"]
        assert not found, found
        self._files({view.id for view in views.values() if not ended_by_its_worker(view)})
        self._journal()  # last: who only reads leaves a -wal file behind

    async def _views(self, sup: Supervisor) -> dict[str, RunView]:
        """Every run, by its request id; also those whose logs were collected."""
        found: dict[str, RunView] = {}
        before = None
        while True:
            page = await sup.list(limit=100, before=before, collected=True)
            for run in page.runs:
                if run.imported is not None:
                    await self._foreign(sup, run)
                    continue
                assert run.request_id not in found, f"two runs of {run.request_id}"
                found[run.request_id] = await sup.inspect(run.id)
            before = page.next_before
            if before is None:
                break
        assert set(found) <= set(self._driver.requests), "a run that nobody asked for"
        assert self._driver.books.executed() <= set(found), "executed, and not in the journal"
        return found

    async def _foreign(self, sup: Supervisor, run: RunView) -> None:
        """All of what was imported is there."""
        assert run.id == foreign.RUN
        assert (await sup.events(run.id)).end
        assert await sup.inspect(run.id) == run

    def _of_request(self, request: Request, view: RunView | None) -> None:
        """The answers that were given agree with each other, and with what is known now."""
        book = self._driver.books.read(request.id)
        assert len(book.begun) <= 1, (request.id, "was executed", book.begun)
        assert len(request.run_ids) <= 1, (request.id, "has runs", request.run_ids)
        assert request.admissions["new"] <= 1, (request.id, request.admissions)
        if view is None:
            assert not request.run_ids, (request.id, "was answered, and is not known")
            assert not book.begun, request.id
            return
        assert request.run_ids <= {view.id}
        assert view.state in SETTLED_STATES, (request.id, view.state)
        for told in request.settled:
            now = view.to_dict()
            for name in ("state", "outcome", "attempt"):
                assert told[name] == now[name], (request.id, name, told[name], now[name])
        self._outcome(request, view, book)

    def _outcome(self, request: Request, view: RunView, book: Book) -> None:
        what = (request.id, view.id, view.state.value, view.reason, view.outcome, book)
        if view.state is RunState.NOT_STARTED:
            assert not book.begun, what
            assert view.outcome is None, what
            assert request.kind != "missing" or view.reason, what
        elif view.state is RunState.FINISHED:
            assert view.outcome is not None, what
            pid = book.begun if view.collected_ns else [(view.program or {}).get("pid")]
            assert pid == book.begun or (view.outcome.signal and not book.begun), what
            if view.outcome.code is not None:
                assert book.ended == [view.outcome.code], what
            causes = {
                "cancelled": request.stops > 0 or request.kind == "scoped" or view.id in self._driver.calmed,
                "timed_out": "timeout" in request.form["limits"],
            }
            kind = view.outcome.kind.value
            if kind == "signaled" and not view.collected_ns:
                assert view.outcome.signal in (signal.SIGKILL, signal.SIGUSR1), what
                assert view.outcome.signal == signal.SIGUSR1 or self._was_killed(view.program), what
            assert causes.get(kind, kind in ("exited", "signaled")), what
        else:
            assert view.outcome is None, what
            assert view.evidence, what
            assert not view.retryable, what
            if not self._was_killed(view.worker):
                self._unexplained.append(f"{request.id} {view.id} {view.reason} {view.evidence}")

    def _was_killed(self, one: dict[str, object] | None) -> bool:
        """By the driver, who knows whom it struck."""
        return one is not None and (one["pid"], one["start_ticks"]) in self._driver.herd.killed

    async def _of_run(self, sup: Supervisor, view: RunView) -> None:
        """Its events are gapless, say what the book says, and are what every follower has seen."""
        if view.collected_ns is not None:
            return
        events = await gapless(sup, view.id)
        request = self._driver.requests[view.request_id]
        book = self._driver.books.read(view.request_id)
        if request.kind != "terminal":
            for stream in ("stdout", "stderr"):
                self._output(view, events, stream, book)
        controls(view, events)
        for follower in self._driver.followers:
            if follower.run == view.id:
                self._followed(follower, view, events)

    def _followed(self, follower: Follower, view: RunView, events: list[Event]) -> None:
        """Each event once, in order, none left out, as it is now; but for what was dropped meanwhile."""
        seen = read_book(self._driver.folder / "followed" / follower.name)
        kept = {event.seq: mark(event) for event in events}
        dropped = [event for event in events if event.kind == "output.dropped"]
        for one in seen:
            covered = any(int(str(gap.detail["first_seq"])) <= one[0] <= gap.seq for gap in dropped)
            assert covered or kept.get(one[0]) == one, (view.id, one, kept.get(one[0]))
        numbers = [one[0] for one in seen]
        assert numbers == sorted(set(numbers)), (view.id, numbers)
        gone = {gap.seq for gap in dropped}
        missed = [event.seq for event in events if event.seq not in gone and event.seq not in set(numbers)]
        # Of a run that was over (a retry, an operator's word), or where nobody was there to say how it ended.
        over = view.id in self._quarantined or bool(seen and seen[-1][1] in TERMINAL_KINDS)
        cursor = numbers[-1] if numbers else 0
        if over or follower.alone or ended_without_a_word(events, cursor):
            missed = [seq for seq in missed if seq < cursor]
        assert not missed, (follower.name, view.id, missed, numbers)

    def _output(self, view: RunView, events: list[Event], stream: str, book: Book) -> None:
        """Byte for byte what the program wrote, in its order, as far as its worker could see."""
        expected = book.expected(stream)
        end, data = 0, b""
        for event in events:
            if event.kind == "output" and event.stream == stream:
                offset = int(str(event.detail["offset"]))
                assert offset >= end, (view.id, stream, event)
                data += event.data
                same = expected[offset : offset + len(event.data)] == event.data
                assert same or stream == "stderr", (view.id, stream, event)
                end = offset + len(event.data)
        if stream == "stderr":
            # A shell, too, has something to say there, when a child of its own was killed.
            own = [line for line in data.splitlines(keepends=True) if line not in SHELLS]
            assert expected.startswith(b"".join(own)), (view.id, data)
        if view.state is not RunState.FINISHED or view.receipt is None or view.receipt["incomplete"]:
            return
        told: Any = view.receipt["output"]
        by_itself = view.outcome is not None and view.outcome.kind.value == "exited" and not book.cut
        if by_itself and told[stream]["complete"]:
            assert told[stream]["bytes"] + told[stream]["dropped"] >= len(expected), (view.id, stream, told)
        if not told[stream]["dropped"]:
            assert told[stream]["bytes"] == end, (view.id, stream, told, end)
        lines = book.streams[stream]
        if by_itself and not told[stream]["dropped"] and view.receipt["cleanup_confirmed"]:
            unsaid = len(lines[-1]) if lines and not book.ended else 0
            assert end >= len(expected) - unsaid, (view.id, stream)

    async def _feed(self, sup: Supervisor, views: dict[str, RunView]) -> None:
        """Without a gap, every step of it allowed by the table, and its last word is the run's state."""
        states: dict[str, RunState] = {}
        position = 0
        while entries := await sup.feed(after=position, limit=1000):
            for entry in entries:
                position += 1
                assert entry.position == position, (entry, position)
                before = states.get(entry.run_id)
                if before is None:
                    assert entry.trigger == "admit", entry
                else:
                    assert TRANSITIONS[before, Trigger(entry.trigger)] is entry.state, (before, entry)
                states[entry.run_id] = entry.state
                if entry.state is RunState.QUARANTINED:
                    self._quarantined.add(entry.run_id)
        assert states == {view.id: view.state for view in views.values()}

    async def _again(self, sup: Supervisor, request: Request, view: RunView | None) -> None:
        """The request once more: the same run; executed only where it never was."""
        if view is None or (view.state is RunState.NOT_STARTED and view.retryable):
            return
        try:
            answer = await Actor(sup, "").start(**copy.deepcopy(request.form))
        except SupervisorError as error:
            raise AssertionError(f"{request.id}: {error}") from error
        assert (answer["run_id"], answer["admission"]) == (view.id, "existing"), (request.id, answer)
        assert answer["state"] == view.state.value, (request.id, answer)

    async def _copy(self, path: Path, views: dict[str, RunView]) -> None:
        """A backup of some moment has no end that is not the run's, and executes nothing that it knows."""
        async with Supervisor.open(path) as sup:
            known = (await sup.list(limit=1000, collected=True)).runs
            for run in known:
                if run.imported is not None:
                    continue
                now, request = views[run.request_id], self._driver.requests[run.request_id]
                assert run.id == now.id, (path, run, now)
                assert run.state in SETTLED_STATES, (path, run)
                if run.state is RunState.FINISHED:
                    assert (now.state, now.outcome) == (run.state, run.outcome), (path, run, now)
                before = self._driver.books.read(request.id).begun
                answer = await Actor(sup, "").start(**copy.deepcopy(request.form))
                assert answer["admission"] == "existing", (path, answer)
                assert self._driver.books.read(request.id).begun == before, (path, run)

    def _journal(self) -> None:
        with JournalReader.open(str(self._driver.state / "journal.db")) as journal:
            for pragma, sound in (("integrity_check", [("ok",)]), ("foreign_key_check", [])):
                found = journal.read(lambda conn, pragma=pragma: conn.execute(f"PRAGMA {pragma}").fetchall())  # type: ignore[misc]
                assert [tuple(row) for row in found] == sound, found
            directory_id = journal.read(meta.directory_id)
        assert directory_id is not None
        assert not run_cgroups.leftovers(cgroups.places(), directory_id)

    def _files(self, broken_off: set[str]) -> None:
        """Nothing but what is meant to stay, none of it locked, and all of it private.

        A worker may have been killed between making the directory of its segments and the first of them; or
        a segment and its header, which whoever repairs the log sets aside.
        """
        state = self._driver.state
        strangers = {path.name for path in state.iterdir()} - KEPT
        assert not strangers, strangers
        for path in state.rglob("*"):
            mode = path.lstat().st_mode
            assert stat.S_IMODE(mode) == (0o700 if path.is_dir() else 0o600), (path, oct(mode))
        for path in (state / "imported").glob("*"):
            assert path.name.endswith(f".{foreign.RUN}"), path
        for path in (state / "runs").glob("*/**/*"):
            assert path.is_dir() or path.suffix == ".log" or SET_ASIDE.fullmatch(path.name), path
            assert path.is_file() or any(path.iterdir()) or path.name.partition(".")[0] in broken_off, path
            if path.suffix == ".log":
                assert probe_lock(str(path)) is not LockState.HELD, path


def ended_by_its_worker(view: RunView) -> bool:
    """Did that see to the end of it all, and say so?"""
    return (view.receipt or {}).get("cleanup_confirmed") is True


def ended_without_a_word(events: list[Event], cursor: int) -> bool:
    """Was the run over at ``cursor`` by the journal alone?

    Where an owner finds more lost at once than it writes words for (`judging.WORDS_AT_ONCE`), what comes
    next in the log, if anything, is an operator's word or another attempt.
    """
    begun = [event for event in events if event.seq <= cursor and event.kind in BEGINNINGS]
    attempts = [int(str(event.detail["attempt"])) for event in begun]
    coming = (event for event in events if event.seq > cursor and event.kind != Kind.RUN_LOG_REPAIRED)
    following = next(coming, None)
    if following is None or following.kind not in BEGINNINGS:
        return following is not None and following.kind == Kind.RUN_RESOLVED
    return int(str(following.detail["attempt"])) > max(attempts, default=1)


def controls(view: RunView, events: list[Event]) -> None:
    """Each control is applied once at most, after it was received."""
    received: set[object] = set()
    applied: set[object] = set()
    for event in events:
        name = event.detail.get("id")
        if event.kind == "control.received":
            assert name not in received, (view.id, event)
            received.add(name)
        elif event.kind == "control.applied":
            assert name in received - applied, (view.id, event)
            applied.add(name)


def read_book(path: Path) -> list[list[Any]]:
    return list(_lines(path)) if path.exists() else []


def _lines(path: Path) -> Iterator[list[Any]]:
    for line in path.read_text().splitlines():
        yield json.loads(line)


def judge(driver: Driver) -> None:
    asyncio.run(Oracle(driver).judge())
