"""What a caller of `start` is told, and when: from the admission to the worker's first word."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from ...journal.rows import Admission, RunRow
from ...model.errors import ErrorCode, SupervisorError
from ...model.run import Run
from ...model.states import JUDGED_STATES, OPEN_STATES, RunState
from ..admission.admission import Prepared
from ..dispatch.dispatch import NOT_KNOWN

_LOOK_AGAIN = (0.005, 0.02, 0.1, 0.3)  # seconds
_STATES = {"released": RunState.RUNNING, "queued": RunState.QUEUED}


class Line(Protocol):
    """Who waits for a slot."""

    def line_up(self, row: RunRow) -> None: ...

    def serve(self) -> None: ...

    async def count_again(self) -> None: ...


class Starter:
    """Starts runs of one owner, with an event loop or without: it waits for what it is given here alone.

    ``plan`` does blocking work: the probe of this machine, and a look at the files that are granted.
    """

    def __init__(
        self,
        dispatch: Callable[[Prepared], Awaitable[tuple[Admission, str]]],
        judge: Callable[[str], Awaitable[RunRow]],
        line: Line,
        plan: Callable[[Callable[[], Any]], Awaitable[Any]],
        pause: Callable[[float], Awaitable[None]],
        state_dir: str,
    ) -> None:
        self._dispatch = dispatch
        self._judge = judge
        self._line = line
        self._plan = plan
        self._pause = pause
        self._state_dir = state_dir

    async def start(self, prepared: Prepared) -> Run:
        """Raises as `Dispatch.start`, and what the journal raises."""
        if prepared.request.confines:
            from ..policy.planning import (
                rule,  # and all that it knows of: most requests ask for nothing of it
            )

            prepared.ruling = await self._plan(lambda: rule(prepared.request, prepared.cwd, self._state_dir))
        try:
            admission, word = await self._admit(prepared)
            if admission.kind == "existing" and admission.row.state in JUDGED_STATES:
                # The evidence may say more than the row; a not_started that it proves by now is tried again.
                row = await self._judge(admission.row.run_id)
                if not row.may_retry:
                    return _answer(admission, row.state, row.reason)
                admission, word = await self._admit(prepared)
            state, reason = _STATES.get(word, admission.row.state), admission.row.reason
            if word != NOT_KNOWN and word not in _STATES:
                row = await self._judge_ended(admission.row.run_id)
                state, reason = row.state, row.reason
            if state is RunState.QUEUED and admission.kind != "existing":
                self._line.line_up(admission.row)
            return _answer(admission, state, reason)
        finally:
            self._line.serve()  # the slot that was kept for a start that came to nothing is free again

    async def _admit(self, prepared: Prepared) -> tuple[Admission, str]:
        """Nobody is refused for a run that has ended: before a refusal counts, the evidence is looked at."""
        try:
            return await self._dispatch(prepared)
        except SupervisorError as error:
            if error.code is not ErrorCode.CAPACITY_EXHAUSTED:
                raise
        await self._line.count_again()
        return await self._dispatch(prepared)

    async def _judge_ended(self, run_id: str) -> RunRow:
        """Its channel has ended; the kernel may take a moment more to free the lock of a dying worker."""
        for pause in _LOOK_AGAIN:
            row = await self._judge(run_id)
            if row.state not in OPEN_STATES:
                break
            await self._pause(pause)
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
