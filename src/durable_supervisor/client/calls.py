"""Calls, and what becomes of them when their connection ends: one rule for each kind of call."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from typing import Final, TypeVar

from ..model.errors import ErrorCode, Phase, SupervisorError
from .answer import Answer, error_of, value_of
from .connections import Connections
from .failures import CONCLUSIVE, LEAVING, LostError, indeterminate, unavailable
from .link import Link
from .request import ANSWER_SECONDS, Call, Form, Request, Resend
from .steps import Steps, Wait, pause
from .stream import Stream, batch_of, check_end

T = TypeVar("T")

_FIRST_PAUSE: Final = 0.01
_LONGEST_PAUSE: Final = 0.5


class Patience:
    """How long to look for a service that went away: from the first failure on, until `reset`."""

    def __init__(self, seconds: float, clock: Callable[[], float]) -> None:
        self._seconds = seconds
        self._clock = clock
        self.reset()

    def reset(self) -> None:
        """It answers."""
        self._until: float | None = None
        self._pause = _FIRST_PAUSE

    def again(self) -> Steps[bool]:
        """True after a pause; False once the time is over."""
        now = self._clock()
        if self._until is None:
            self._until = now + self._seconds
        if now >= self._until:
            return False
        yield from pause(min(self._pause, self._until - now))
        self._pause = min(self._pause * 2, _LONGEST_PAUSE)
        return True


class Calls:
    """``reconnect``: how many seconds a service may be away before a call that may wait gives up."""

    def __init__(
        self, connections: Connections, reconnect: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.connections = connections
        self.clock = clock
        self._reconnect = reconnect

    def patience(self) -> Patience:
        return Patience(self._reconnect, self.clock)

    def reach(self) -> Steps[None]:
        """Is the service there?  Raises what `Connections.dial` does, and ``SERVICE_UNAVAILABLE``."""
        try:
            self.connections.keep((yield from self.connections.dial()))
        except LostError as lost:
            raise self.gone(lost) from lost

    def gone(self, lost: LostError) -> SupervisorError:
        """Nobody was there to carry it out.  Raises ``SUPERVISOR_CLOSED`` where this client was closed."""
        self.connections.check_open()
        return unavailable(lost)

    def do(self, call: Call[T]) -> Steps[T]:
        """Its value, under the rule for its kind.

        Raises what the service answers; ``SERVICE_UNAVAILABLE`` where it was not carried
        out, ``SUBMISSION_INDETERMINATE`` where it may have been.
        """
        send = {Resend.NEVER: self._once, Resend.ONCE: self._twice, Resend.PERSIST: self._persist}
        return value_of(call, (yield from send[call.request.resend](call.request)))

    def attempt(self, request: Request) -> Steps[Answer]:
        """Send it on one connection.  Raises `LostError`, ``FRAME_TOO_LARGE``."""
        while True:
            idle = self.connections.take()
            link = idle or (yield from self.connections.dial())
            try:
                with self.connections.using(link):
                    self._check_size(request)
                    yield from link.send(request)
                    if request.patient:
                        yield from self._until_it_comes(link)
                    return (yield from link.answer((yield from link.head(request)), request))
            except LostError as lost:
                if idle is None or lost.sent:
                    raise
                # It was ended while nobody used it: this call has nothing to do with that.

    def follow(
        self, request_at: Callable[[int], Request], after: int, make: Callable[[Form], T]
    ) -> Generator[Wait | Sequence[T], bool, None]:
        """What comes on a stream behind a cursor, each entry once, over as many connections as it takes.

        Raises what the service answers; ``SERVICE_UNAVAILABLE`` when it stays away.
        """
        patience, begun = self.patience(), False
        while True:
            request = request_at(after)
            try:
                link = yield from self.connections.dial()  # it serves no other call afterwards
                with self.connections.using(link):
                    stream, begun = (yield from Stream.open(link, request)), True
                    while (messages := (yield from stream.read())) is not None:
                        patience.reset()
                        batch = batch_of(request.verb, messages, after, make)
                        after = batch.after
                        if batch.entries:
                            yield batch.entries
                        if batch.last is not None:
                            return check_end(request.verb, batch.last)
                raise LostError("it ended the stream")
            except LostError as lost:
                failure = self.gone(lost)
            except SupervisorError as error:
                self.connections.check_open()
                if error.code not in LEAVING and not (begun and error.code is ErrorCode.BUSY):
                    raise  # a full house is no reason to lose who was in it before
                failure = error
            if not (yield from patience.again()):
                raise failure

    def _until_it_comes(self, link: Link) -> Steps[None]:
        """However long it takes.  Silence is no death: the service is asked on another connection, and
        only one that does not answer there either (a stopped process, say) counts as lost."""
        while not (yield from link.comes(ANSWER_SECONDS)):
            try:
                self.connections.keep((yield from self.connections.dial()))
            except LostError as lost:
                raise LostError(lost.why, sent=True) from lost
            except SupervisorError:
                self.connections.check_open()  # a refusal is an answer, too

    def _once(self, request: Request) -> Steps[Answer]:
        try:
            return (yield from self.attempt(request))
        except LostError as lost:
            raise (indeterminate(request, lost) if lost.sent else self.gone(lost)) from lost

    def _twice(self, request: Request) -> Steps[Answer]:
        try:
            return (yield from self.attempt(request))
        except LostError as lost:
            if not lost.sent:  # nobody is there
                raise self.gone(lost) from lost
        try:
            return (yield from self.attempt(request))
        except LostError as lost:
            raise self.gone(lost) from lost

    def _persist(self, request: Request) -> Steps[Answer]:
        patience = self.patience()
        doubt: LostError | None = None  # it may have been carried out
        while True:
            try:
                answer = yield from self.attempt(request)
                failure = error_of(request.verb, answer)
                if failure is None:
                    return answer
                again = failure.code in LEAVING
            except LostError as lost:
                doubt = lost if lost.sent else doubt
                failure, again = unavailable(lost), not self.connections.closed
            except SupervisorError as error:
                failure, again = error, False
            if again and (yield from patience.again()):
                continue
            if doubt is None or failure.code in CONCLUSIVE:
                raise failure
            raise indeterminate(request, doubt)

    def _check_size(self, request: Request) -> None:
        """What the service would refuse only after it has read half of it is not sent at all."""
        info = self.connections.info
        if info is not None and len(request.body) > info.max_body_bytes:
            raise SupervisorError(
                ErrorCode.FRAME_TOO_LARGE,
                f"the {request.verb} has {len(request.body)} bytes; the service takes {info.max_body_bytes}",
                phase=Phase.VALIDATE,
                hint="start with stdin='open', and write a large stdin in pieces (write_stdin)",
                details={"limit": info.max_body_bytes},
            )
