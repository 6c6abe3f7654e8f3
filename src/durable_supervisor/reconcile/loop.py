"""When to judge: every open run at open, then each run that something happened to.

Level-triggered: a mark only says "look at this run", however often it is made; what
is found is decided by the evidence then.  A slow pass over all open runs finds
what no mark told of.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Executor
from typing import Any, TypeVar

from ..journal.connection import Journal
from ..journal.rows import RunRow
from ..model.states import JUDGED_STATES
from ..process.clock import Clock
from ..process.shortage import is_shortage
from ..process.threads import in_thread
from .act import Judged, must_sync
from .judging import Judge, PassReport
from .observe import Place

T = TypeVar("T")

INTERVAL = 15.0
GATHER_SECONDS = 0.05  # how long the mark of a run that nobody waits for waits for those of others
_RETRY_SECONDS = 1.0
_PATIENT = 4  # runs in one patient call of the journal, at most


class Reconciler:
    """Judges runs of one journal, one batch at a time; file work happens in a thread.

    ``on_change`` is called on the loop with each changed row.  `run` is the background
    part; `pass_once` and `judge` also work without it.  ``executor``: whose threads, by
    default the loop's own, which its host may keep busy with something else.

    ``hurried``: does somebody wait for what marked runs come to?  Else many share a look, and what their logs
    say is folded with the next commit: until then the logs are the evidence, for every reader.
    """

    def __init__(
        self,
        journal: Journal,
        place: Place,
        clock: Clock,
        *,
        on_change: Callable[[RunRow], None] | None = None,
        on_error: Callable[[Exception], None] | None = None,
        interval: float = INTERVAL,
        executor: Executor | None = None,
        hurried: Callable[[], bool] = lambda: True,
    ) -> None:
        self._journal = journal
        self._on_change = on_change
        self._on_error = on_error
        self._interval = interval
        self._executor = executor
        self._hurried = hurried
        self._loop = asyncio.get_running_loop()
        self._judge = Judge(journal, place, clock, self._in_thread, self._seen_none)
        self._marked: set[str] = set()
        self._wake = asyncio.Event()
        self._gathering: asyncio.TimerHandle | None = None
        self._again: set[str] = set()  # to be marked in a while
        self._retry: asyncio.TimerHandle | None = None
        self._turn = asyncio.Lock()
        self._tasks: set[asyncio.Task[Any]] = set()

    async def pass_once(self) -> PassReport:
        """Judge every open and quarantined run.  A cancelled caller stops nothing half-way."""
        return await self._apart(self._pass())

    async def judge(self, run_id: str) -> RunRow:
        """Judge one run now, a settled one for its log's health; its row as it is after that.

        Raises SupervisorError ``UNKNOWN_RUN``, and what the journal raises.
        """
        await self._apart(self._judge_ids([run_id]))
        return await self._judge.row(run_id)

    async def judge_all(self, run_ids: Sequence[str]) -> None:
        """`judge` for many, in one look."""
        await self._apart(self._judge_ids(run_ids))

    def mark(self, run_id: str) -> None:
        """Something happened to this run: have it judged soon.  Many marks make one look."""
        self._marked.add(run_id)
        if self._hurried():
            self._wake.set()
        elif self._gathering is None:
            self._gathering = self._loop.call_later(GATHER_SECONDS, self._wake.set)

    def fold_soon(self, ready: Sequence[Judged]) -> asyncio.Task[None]:
        """Fold what durable logs say, looked at already.  Done when the journal has it, or it is marked."""
        return self._spawn(self._fold_ends(ready))

    async def run(self) -> None:
        """Judge marked runs until cancelled, and all open ones every ``interval`` seconds."""
        while True:
            try:
                async with asyncio.timeout(self._interval):
                    await self._wake.wait()
            except TimeoutError:
                await self._guarded(self.pass_once(), set())
                continue
            self._wake.clear()
            marked = self._take_marked()
            patient = not self._hurried()
            await self._guarded(self._apart(self._judge_ids(sorted(marked), patient=patient)), marked)

    async def settle(self) -> None:
        """Judge what is still marked, and wait for judging under way (after `run` was cancelled)."""
        if self._retry is not None:
            self._retry.cancel()
            self._mark_again()
        marked = self._take_marked()
        try:
            if marked:
                await self._apart(self._judge_ids(sorted(marked)))
        except Exception as error:  # noqa: BLE001  (closing goes on; the next opening judges anew)
            self._failed(error)
        self._journal.hurry()
        while self._tasks:
            await asyncio.wait(set(self._tasks))

    def _take_marked(self) -> set[str]:
        if self._gathering is not None:
            self._gathering.cancel()
            self._gathering = None
        marked, self._marked = self._marked, set()
        return marked

    async def _guarded(self, work: Coroutine[Any, Any, object], marked: set[str]) -> None:
        """An error (a busy journal, a full disk) ends no loop: what was marked stays so."""
        try:
            await work
        except Exception as error:  # noqa: BLE001  (whatever it is, the next run must be judged)
            self._failed(error)
            self._marked |= marked
            await asyncio.sleep(_RETRY_SECONDS)
            if self._marked:
                self._wake.set()

    async def _apart(self, work: Coroutine[Any, Any, T]) -> T:
        return await asyncio.shield(self._spawn(work))

    def _spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._over)
        return task

    def _over(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # whoever waited may be gone: asyncio would tell the host's log of it

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await (asyncio.to_thread(work) if self._executor is None else in_thread(self._executor, work))

    async def _pass(self) -> PassReport:
        async with self._turn:
            return await self._judge.all_open(self._fold)

    async def _judge_ids(self, run_ids: Sequence[str], *, patient: bool = False) -> None:
        async with self._turn:
            await self._judge.these(run_ids, self._fold_behind if patient else self._fold)

    async def _fold_behind(self, ready: Sequence[Judged]) -> list[RunRow]:
        """Where nobody waits for it, with the next commit; at once what no power loss may take back."""
        if any(map(must_sync, ready)):
            return await self._fold(ready)
        _ = self._spawn(self._fold_patiently(ready, patient=True))
        return []

    async def _fold_ends(self, ready: Sequence[Judged]) -> None:
        for row in await self._fold_patiently(ready, patient=not self._hurried()):
            if row.state in JUDGED_STATES:  # the journal had moved on from the row that was judged by
                self.mark(row.run_id)

    async def _fold_patiently(self, ready: Sequence[Judged], *, patient: bool) -> list[RunRow]:
        """What their logs say durably, with the next commit.  Whatever comes up, they are looked at again.

        ``patient``: in calls of a few runs, a few of which the journal takes at a time: many in one call
        would be a transaction that keeps the next start waiting for all of them.  A call for each run would
        be a task for each, which costs the loop more than all else that it does for a fold.
        """
        groups = [ready[at : at + _PATIENT] for at in range(0, len(ready), _PATIENT)]
        parts = groups if patient else [ready]
        answers = await self._fold_each(parts, patient)
        errors = [answer for answer in answers if isinstance(answer, Exception)]
        if errors:  # a busy journal, a full disk: as a rule it is the same for all of them
            self._failed(errors[0])
        return [row for answer in answers if not isinstance(answer, Exception) for row in answer]

    async def _fold_each(
        self, parts: Sequence[Sequence[Judged]], patient: bool
    ) -> list[list[RunRow] | Exception]:
        """Each in a call of its own, at once."""
        folds = [self._fold_or_errors(part, patient) for part in parts]
        answers = await asyncio.gather(*folds) if len(folds) > 1 else [await fold for fold in folds]
        return [answer for several in answers for answer in several]

    async def _fold_or_errors(self, ready: Sequence[Judged], patient: bool) -> list[list[RunRow] | Exception]:
        """In one call; where that fails, once more in a call for each: a bad run harms only itself."""
        try:
            return [await self._fold(ready, patient=patient)]
        except Exception as error:  # noqa: BLE001
            if len(ready) == 1:
                return [error]
        return await self._fold_each([[item] for item in ready], patient)

    async def _fold(self, ready: Sequence[Judged], *, patient: bool = False) -> list[RunRow]:
        """Into the journal, and tell of it.  Raises what `Judge.fold` does; then they are looked at again."""
        try:
            rows = await self._judge.fold(ready, patient=patient)
        except Exception:
            self._mark_later([item.row.run_id for item in ready])
            raise
        if self._on_change is not None:
            for row in rows:
                self._on_change(row)
        return rows

    def _mark_later(self, run_ids: Sequence[str]) -> None:
        self._again.update(run_ids)
        if self._retry is None:
            self._retry = self._loop.call_later(_RETRY_SECONDS, self._mark_again)

    def _mark_again(self) -> None:
        self._retry = None
        while self._again:
            self.mark(self._again.pop())

    def _seen_none(self, run_id: str, error: Exception) -> None:
        """In a thread."""
        self._loop.call_soon_threadsafe(self._not_seen, run_id, error)

    def _not_seen(self, run_id: str, error: Exception) -> None:
        self._failed(error)
        if is_shortage(error):  # nothing else may ever ask for this run to be looked at
            self._mark_later([run_id])

    def _failed(self, error: Exception) -> None:
        if self._on_error is not None:
            self._on_error(error)
