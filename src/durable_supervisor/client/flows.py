"""Verbs that take more than one call."""

from __future__ import annotations

from collections.abc import Collection, Generator, Sequence
from functools import partial
from typing import Final, TypeVar

from ..model.answers import ControlReceipt, FeedEntry, ListPage
from ..model.arguments import BytesLike, kinds_of, position, states_of, stdin_bytes
from ..model.command import check_timeout
from ..model.errors import ErrorCode, Phase, SupervisorError, unknown_run
from ..model.events import Event
from ..model.forms import event_of
from ..model.states import RunState
from ..model.view import RunView
from . import verbs
from .answer import error_of, value_of
from .calls import Calls
from .failures import AWAY, LostError
from .steps import Steps, Wait

T = TypeVar("T")

_SLICE_SECONDS: Final = 30.0  # of one call of a wait
_PIECE: Final = 512 * 1024  # of one write to a stdin


def find(calls: Calls, run: str, owner: str | None = None) -> Steps[str]:
    """The full id of a run; with ``owner``, another's is an ``UNKNOWN_RUN``."""
    seen = yield from calls.do(verbs.inspect(run))
    if owner not in (None, seen.owner):
        raise unknown_run(run)
    return seen.id


def list_runs(
    calls: Calls,
    limit: int,
    before: int | None,
    states: Collection[RunState] | None,
    label: tuple[str, str] | None,
    owner: str | None,
    collected: bool = False,
) -> Steps[ListPage]:
    """The service's pages may be smaller than ``limit``."""
    found: list[RunView] = []
    while True:
        call = verbs.list_runs(limit - len(found), before, states, label, owner, collected)
        if states_of(states) == frozenset():  # which a query cannot say
            return ListPage([], None)
        page = yield from calls.do(call)
        found += page.runs
        before = page.next_before
        if before is None or len(found) >= limit:
            return ListPage(found, before)


def wait(calls: Calls, run: str, timeout: float | None) -> Steps[RunView]:
    """In slices, over as many connections as it takes."""
    check_timeout("timeout", timeout)
    deadline = None if timeout is None else calls.clock() + timeout
    run = yield from _whole(calls, run)
    patience, begun = calls.patience(), False
    while True:
        left = _SLICE_SECONDS if deadline is None else max(0.0, deadline - calls.clock())
        call = verbs.wait(run, min(left, _SLICE_SECONDS))
        try:
            answer = yield from calls.attempt(call.request)
            failure = error_of("wait", answer)
        except LostError as lost:
            failure = calls.gone(lost)
        if failure is None:
            return value_of(call, answer)
        over = deadline is not None and calls.clock() >= deadline
        if failure.code is ErrorCode.WAIT_TIMEOUT:
            patience.reset()
            begun = True
            if over:
                raise _wait_timeout(failure, timeout or 0.0)
            continue
        away = failure.code in AWAY or (begun and failure.code is ErrorCode.BUSY)
        if not away or over or not (yield from patience.again()):
            raise failure


def acknowledge(calls: Calls, run: str, stdout: int, stderr: int) -> Steps[None]:
    """A program may be waiting for it: said again for as long as a service that went away may come back."""
    call, patience = verbs.acknowledge(run, stdout, stderr), calls.patience()
    while True:
        try:
            return (yield from calls.do(call))
        except SupervisorError as error:
            if error.code not in AWAY or not (yield from patience.again()):
                raise


def follow(
    calls: Calls, run: str, after: int, kinds: Collection[str] | None, output: bool
) -> Generator[Wait | Sequence[Event], bool, None]:
    wanted, after = kinds_of(kinds), position("after", after)
    run = yield from _whole(calls, run)
    yield from calls.follow(lambda cursor: verbs.follow(run, cursor, wanted, output), after, event_of)


def follow_feed(
    calls: Calls, after: int, owner: str | None
) -> Generator[Wait | Sequence[FeedEntry], bool, None]:
    request_at = partial(verbs.follow_feed, owner=owner)
    yield from calls.follow(request_at, position("after", after), FeedEntry.from_dict)


def write_stdin(calls: Calls, run: str, data: BytesLike, eof: bool, timeout: float) -> Steps[ControlReceipt]:
    """In pieces, each with its receipt; the last one's is the answer.

    A failure's ``details["confirmed"]`` says how many bytes came before it and are written.
    """
    whole = stdin_bytes(data)
    begins = range(0, len(whole), _PIECE) or (0,)
    for begin in begins:
        piece, last = whole[begin : begin + _PIECE], begin == begins[-1]
        try:
            following = len(whole) - begin - len(piece)
            receipt = yield from calls.do(verbs.write_stdin(run, piece, following, eof and last, timeout))
        except SupervisorError as error:
            error.details["confirmed"] = begin + _confirmed(error)
            raise
    return receipt


def _confirmed(error: SupervisorError) -> int:
    """Bytes of this one piece: it may be written, and only the end of file behind it refused."""
    told = error.details.get("confirmed")
    return told if isinstance(told, int) else 0


def _whole(calls: Calls, run: str) -> Steps[str]:
    """A beginning of an id may come to mean two runs while a call goes on; the id itself will not."""
    return run if verbs.is_full_id(run) else (yield from find(calls, run))


def _wait_timeout(last: SupervisorError, timeout: float) -> SupervisorError:
    """The service speaks of the last slice; the caller waited for the whole."""
    run_id, state = last.details.get("run_id"), last.details.get("state")
    return SupervisorError(
        ErrorCode.WAIT_TIMEOUT,
        f"run {run_id} is still {state} after {timeout:g} s",
        phase=Phase.RUN,
        retryable=True,
        hint=last.hint,
        details=last.details,
    )
