"""What a caller of `start` is told, and when: from the admission to the worker's first word."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ..journal.rows import Admission, RunRow
from ..model.errors import ErrorCode, SupervisorError
from ..model.run import Run
from ..model.states import JUDGED_STATES, OPEN_STATES, RunState
from ..reconcile.loop import Reconciler
from .admission import Prepared
from .dispatch import NOT_KNOWN, Blocking, Dispatcher
from .queue import Queue

if TYPE_CHECKING:
    from .confinement import Ruling

_LOOK_AGAIN = (0.005, 0.02, 0.1, 0.3)  # seconds
_STATES = {"released": RunState.RUNNING, "queued": RunState.QUEUED}


class Starter:
    """Starts runs of one supervisor."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        reconciler: Reconciler,
        queue: Queue,
        blocking: Blocking[Ruling],
        state_dir: str,
    ) -> None:
        self._dispatcher = dispatcher
        self._reconciler = reconciler
        self._queue = queue
        self._blocking = blocking
        self._state_dir = state_dir
        # One at a time: should the probe hang, or a granted file system, it holds one thread and not all.
        self._planning = asyncio.Lock()

    async def start(self, prepared: Prepared) -> Run:
        """Raises as `Dispatcher.start`, and what the journal raises."""
        if prepared.request.confines:
            from .planning import rule  # and all that it knows of: most requests ask for nothing of it

            async with self._planning:
                prepared.ruling = await self._blocking(
                    lambda: rule(prepared.request, prepared.cwd, self._state_dir)
                )
        try:
            return await self._start(prepared)
        finally:
            self._queue.serve()  # the slot that was kept for a start that came to nothing is free again

    async def _start(self, prepared: Prepared) -> Run:
        admission, word = await self._admit(prepared)
        if admission.kind == "existing" and admission.row.state in JUDGED_STATES:
            # The evidence may say more than the row; a not_started that it proves by now is tried again.
            row = await self._reconciler.judge(admission.row.run_id)
            if not row.may_retry:
                return _answer(admission, row.state, row.reason)
            admission, word = await self._admit(prepared)
        state, reason = _STATES.get(word, admission.row.state), admission.row.reason
        if word != NOT_KNOWN and word not in _STATES:
            row = await self._judge_ended(admission.row.run_id)
            state, reason = row.state, row.reason
        if state is RunState.QUEUED and admission.kind != "existing":
            self._queue.line_up(admission.row)
        return _answer(admission, state, reason)

    async def _admit(self, prepared: Prepared) -> tuple[Admission, str]:
        """Nobody is refused for a run that has ended: before a refusal counts, the evidence is looked at."""
        try:
            return await self._dispatcher.start(prepared)
        except SupervisorError as error:
            if error.code is not ErrorCode.CAPACITY_EXHAUSTED:
                raise
        await self._queue.count_again()
        return await self._dispatcher.start(prepared)

    async def _judge_ended(self, run_id: str) -> RunRow:
        """Its channel has ended; the kernel may take a moment more to free the lock of a dying worker."""
        for pause in _LOOK_AGAIN:
            row = await self._reconciler.judge(run_id)
            if row.state not in OPEN_STATES:
                break
            await asyncio.sleep(pause)
        return row


def _answer(admission: Admission, state: RunState, reason: str | None) -> Run:
    row = admission.row
    return Run(
        row.run_id,
        state,
        row.request_id,
        row.attempt,
        admission.kind,
        row.nested_in,
        row.survives_unit_restart,
        reason,
    )
