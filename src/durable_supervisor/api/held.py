"""One run that a call holds: begun by it, and over before the call is."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final, TypeVar

from ..model.answers import StopReceipt
from ..model.command import check_timeout
from ..model.errors import ErrorCode, Phase, SupervisorError, run_collected
from ..model.outcome import OutcomeKind
from ..model.result import RunResult, never_started
from ..model.run import Run
from ..model.states import RunState
from ..model.view import RunView
from ..supervisor.loop.logs import logger
from ..supervisor.observer import Observer
from .asked import Asked, Input
from .ends import (
    STOPPED,
    end_daemons,
    find_open,
    given_up,
    not_over,
    outcome_unknown,
    silent,
    why_not_started,
    with_output,
)
from .feed import feed, released
from .verbs import Verbs

T = TypeVar("T")

_NOBODY: Final = (
    ErrorCode.SUPERVISOR_CLOSED,
    ErrorCode.SERVICE_UNAVAILABLE,
    ErrorCode.SHUTTING_DOWN,
    ErrorCode.SUBMISSION_INDETERMINATE,
)
_LOOK_AGAIN: Final = (0.05, 0.1, 0.3, 1.0, 3.0)  # seconds
_ANSWER_SECONDS: Final = 20.0  # beyond deadline and grace: kill rounds, drain and a loaded machine


class Held:
    """The run of one call.

    `start` it, ask for its `result`, and `leave` it: that ends it, should it go on.
    """

    def __init__(self, verbs: Verbs, asked: Asked, *, capture: bool) -> None:
        self.verbs = verbs
        self.asked = asked
        self._capture = capture
        self.run_id: str | None = None
        self.over = False  # nothing of it is left that this call could end
        self._loop = asyncio.get_running_loop()
        self._starting: asyncio.Task[Run] | None = None
        self._resulting: asyncio.Task[RunResult] | None = None
        self._grace: float | None = None  # for the next stop; None: the run's own
        self._deserted = False  # whoever answered does so no more
        self._fault: BaseException | None = None  # of what was to be fed to it
        self._left = False
        self._helpers: set[asyncio.Task[Any]] = set()
        self._forget: Callable[[], None] = lambda: None

    async def start(self) -> None:
        """Return once its program is released, or waits for a slot.

        Where its token is cancelled already nothing is started, and `result` says so.  Raises what
        `Supervisor.start` does; ``NOT_STARTED``, ``ENFORCEMENT_REFUSED`` or ``INVALID_REQUEST`` where the
        program could not be executed.
        """
        asked = self.asked
        if asked.token is not None and asked.token.cancelled:
            self.over = True
            return
        self._starting = asyncio.create_task(
            self.verbs.start(
                asked.command,
                request_id=asked.request_id,
                limits=asked.limits,
                labels=asked.labels,
                queue=asked.queue,
                priority=asked.priority,
                policy=asked.policy,
                lifetime=asked.lifetime,
                window=asked.window,
            ),
            name="durable-supervisor-start",
        )
        run = await asyncio.shield(self._starting)
        self.run_id = run.id
        if run.state is RunState.NOT_STARTED and run.reason != STOPPED:
            self.over = True
            raise await why_not_started(self.verbs, await self.verbs.inspect(run.id), asked.command)
        if asked.token is not None:
            self._forget = asked.token.on_cancel(self._token_cancelled)
        if asked.fed is not None and run.admission != "existing":
            _ = self._help(self._feed(run, asked.fed))

    async def result(self, timeout: float | None = None) -> RunResult:
        """How it ended, once it has; with all that is kept of its output, if that is to be captured.

        Raises ``OUTCOME_UNKNOWN`` where that cannot be known; what of it is proven to be left is ended
        then, unless the run is detached.  Raises ``WAIT_TIMEOUT``.
        """
        check_timeout("timeout", timeout)
        if self.run_id is None:
            return never_started(None, self._called_off())
        resulting = self._find_out(self.run_id)
        await asyncio.wait([resulting], timeout=timeout)
        if not resulting.done():
            raise not_over(self.run_id, timeout or 0.0)
        if resulting.cancelled():
            raise given_up(self.run_id)
        return resulting.result()

    async def stop(self, grace: float | None = None) -> StopReceipt:
        """As `Supervisor.stop`; its worker itself is told where nobody else answers any more."""
        run_id = self.known_id()
        try:
            return await self.verbs.stop(run_id, grace=grace)
        except SupervisorError as error:
            if error.code not in _NOBODY:
                raise
        self._deserted = True
        async with Observer.open(self.verbs.state_dir) as observer:
            return await observer.stop(run_id, grace=grace)

    def known_id(self) -> str:
        """Raises ``NOT_RUNNING`` where it was called off before its start."""
        if self.run_id is None:
            raise SupervisorError(
                ErrorCode.NOT_RUNNING,
                "it was called off before its start",
                phase=Phase.CONTROL,
                hint="its token was cancelled before it was started",
            )
        return self.run_id

    async def abandon(self, error: BaseException | None = None) -> None:
        """End the run, and return when nothing of it is left.  A cancellation meanwhile skips the grace.

        ``error``: why the call ends.  A detached run is left alone where it is no cancellation: its
        service may just be away.
        """
        if self.over or (isinstance(error, SupervisorError) and not self.asked.scoped):
            return
        ending = self._help(self._end_now())
        cancelled: asyncio.CancelledError | None = None
        while not ending.done():
            try:
                await asyncio.wait([ending])
            except asyncio.CancelledError as another:
                cancelled = another
                self._hasten()
        if cancelled is not None:
            raise cancelled

    async def leave(self, error: BaseException | None = None) -> None:
        """The end of the call: `abandon` what has not ended, then `release`."""
        self._left = True
        try:
            await self.abandon(error)
        finally:
            await self.release()

    async def release(self) -> None:
        """Watch it no longer.  Idempotent."""
        self._forget()
        helpers = [one for one in self._helpers if not one.done()]
        for one in helpers:
            one.cancel()
        if helpers:
            await asyncio.wait(helpers)

    def dropped(self, holder: object) -> None:
        """``holder`` is finalized: warn if its run may go on, and nobody can end it any more.

        A detached one may be let go on purpose.
        """
        if self.run_id is None or self.over or self._left or not self.asked.scoped:
            return
        words = f"{type(holder).__name__} of run {self.run_id} was never closed"
        warnings.warn(words, ResourceWarning, stacklevel=2, source=holder)

    # Its end.

    def _find_out(self, run_id: str) -> asyncio.Task[RunResult]:
        """How it ends: once, however many wait for it."""
        if self._resulting is None or self._resulting.cancelled():
            self._resulting = self._help(self._result(run_id))
        return self._resulting

    async def _result(self, run_id: str) -> RunResult:
        seen = await self._end(run_id)
        try:
            return await self._told(seen)
        finally:
            self.over = True  # not before: who closes it meanwhile lets this come to its end

    async def _told(self, seen: RunView) -> RunResult:
        if self._fault is not None:
            raise self._fault
        if seen.state is RunState.NOT_STARTED:
            if seen.reason == STOPPED:
                return never_started(seen.id, self._called_off())
            raise await why_not_started(self.verbs, seen, self.asked.command)
        if seen.collected_ns is not None:  # a late repeat: what it printed is gone
            raise run_collected(seen.id, seen.state.value, seen.outcome.to_dict() if seen.outcome else None)
        result = RunResult.from_receipt(seen.receipt or {}, run_id=seen.id)
        if result.reason is OutcomeKind.CANCELLED:
            result = replace(result, cancel_reason=self._called_off())
        return await with_output(self.verbs, result) if self._capture else result

    async def _end(self, run_id: str) -> RunView:
        try:
            seen = await self._wait(run_id)
        except SupervisorError as error:
            if error.code is not ErrorCode.OUTCOME_UNKNOWN or self.over:
                raise
            seen = await self._end_of_lost(run_id)
        if self.asked.scoped and seen.receipt is not None and seen.receipt.get("incomplete"):
            await asyncio.to_thread(end_daemons, run_id)  # its worker was lost before it had ended them
        return seen

    async def _wait(self, run_id: str) -> RunView:
        """No longer than its deadline allows: a worker that is stopped, say, must not hold up the call."""
        limits = self.asked.limits
        bound = None if limits.timeout is None else limits.timeout + limits.grace + _ANSWER_SECONDS
        ran = False  # for all of the last look: its deadline counts from its release
        while True:
            try:
                return await self.verbs.wait(run_id, timeout=bound)
            except SupervisorError as error:
                if error.code is not ErrorCode.WAIT_TIMEOUT:
                    raise
                running = error.details.get("state") != RunState.QUEUED.value
            if running and (ran or not self.asked.queue):
                self.over = True
                raise silent(await self.verbs.inspect(run_id))
            ran = running

    async def _end_of_lost(self, run_id: str) -> RunView:
        """Its worker was killed, say: nobody else ends what may be left of it."""
        seen = await self.verbs.inspect(run_id)
        for pause in _LOOK_AGAIN if self.asked.scoped else ():
            if seen.receipt is not None or seen.state is RunState.NOT_STARTED:
                break
            try:
                seen = await self.verbs.resolve(run_id, "kill", note="the call that it was for has ended")
                break
            except SupervisorError as error:
                if error.code is not ErrorCode.NOT_RESOLVABLE:
                    break
            await asyncio.sleep(pause)  # its owner is still looking at it, or has just found out more
            seen = await self.verbs.inspect(run_id)
        if seen.receipt is None and seen.state is not RunState.NOT_STARTED:
            self.over = True
            raise await outcome_unknown(self.verbs, seen)
        return seen  # late evidence; or a tree that could not be ended, and is named in the receipt

    async def _end_now(self) -> None:
        self.run_id = await self._started()
        if self.run_id is not None:
            await self._end_started(self.run_id)
        self.over = True

    async def _started(self) -> str | None:
        """The run's id, if there is one.  A start is never left half way."""
        if self._starting is None:
            return None
        await asyncio.wait([self._starting])
        error = None if self._starting.cancelled() else self._starting.exception()
        if isinstance(error, SupervisorError) and error.code is ErrorCode.SUBMISSION_INDETERMINATE:
            return await find_open(self.verbs.state_dir, self.asked.request_id)
        return None if self._starting.cancelled() or error is not None else self._starting.result().id

    async def _end_started(self, run_id: str) -> None:
        try:
            await self.stop(self._grace)
        except SupervisorError as error:
            if error.code is not ErrorCode.NOT_RUNNING:  # as one is whose worker was killed
                logger().warning(
                    "run_not_ended", run_id=run_id, error=error.code.value, message=error.message
                )
                return
        if not self._deserted:
            await asyncio.wait([self._find_out(run_id)])

    # What may end it.

    def _called_off(self) -> str | None:
        """What its token was cancelled with, if that was."""
        return None if self.asked.token is None else self.asked.token.reason

    def _hasten(self) -> None:
        """Another cancellation: whatever stop there is, or will be, has no grace.

        Said once: a scope of anyio cancels again with every turn of the loop.
        """
        if self._grace == 0.0:
            return
        self._grace = 0.0
        if self.run_id is not None:
            _ = self._help(self._try_to_stop())

    def _token_cancelled(self) -> None:
        """In any thread, or a signal handler."""
        with suppress(RuntimeError):  # the loop is closed, and the call with it
            self._loop.call_soon_threadsafe(lambda: self._help(self._try_to_stop()))

    async def _try_to_stop(self) -> None:
        """The end is waited for elsewhere, and what keeps it from being confirmed shows there."""
        with suppress(SupervisorError):
            await self.stop(self._grace)

    async def _feed(self, run: Run, given: Input) -> None:
        try:
            if run.state is RunState.QUEUED:
                await released(self.verbs, run.id)
            await feed(self.verbs, run.id, given, self.asked.limits.max_stdin_bytes)
        except Exception as error:  # noqa: BLE001  also whatever the caller's own iterator raises
            self._fault = error
            await self._try_to_stop()

    def _help(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Besides whatever the call is waiting for; ended by `release` at the latest."""
        task = self._loop.create_task(work)
        self._helpers.add(task)
        task.add_done_callback(self._helped)
        return task

    def _helped(self, task: asyncio.Task[Any]) -> None:
        self._helpers.discard(task)
        if not task.cancelled():
            task.exception()  # whoever waits for it gets it; else the call has ended in another way
