"""What a connection that ends too early, or an answer that is none, means to the caller."""

from __future__ import annotations

from ..model.errors import ErrorCode, Phase, SupervisorError
from .request import Request, Resend

# It refuses before it has looked: whoever owns the directory next may answer.
LEAVING = frozenset({ErrorCode.SHUTTING_DOWN, ErrorCode.SUPERVISOR_CLOSED})
# Of a start: the request id was looked up, or could not have been carried out before either.
CONCLUSIVE = frozenset(
    {ErrorCode.IDEMPOTENCY_CONFLICT, ErrorCode.CAPACITY_EXHAUSTED, ErrorCode.INVALID_REQUEST}
)
AWAY = LEAVING | {ErrorCode.SERVICE_UNAVAILABLE}


class LostError(Exception):
    """There is no answer, and there will be none on this connection.

    ``sent``: some of the request may have been read.  ``why``: for people, in a few words.
    """

    def __init__(self, why: str, *, sent: bool = False) -> None:
        super().__init__(why)
        self.why = why
        self.sent = sent


def unavailable(lost: LostError) -> SupervisorError:
    """``SERVICE_UNAVAILABLE``: nothing was carried out."""
    error = SupervisorError(
        ErrorCode.SERVICE_UNAVAILABLE,
        f"the service does not answer: {lost.why}",
        phase=Phase.CONNECT,
        retryable=True,
        hint="start one (`durable-supervisor serve`), or do without: name no socket, in Python use `open`",
    )
    error.__cause__ = lost
    return error


def indeterminate(request: Request, lost: LostError) -> SupervisorError:
    """``SUBMISSION_INDETERMINATE``: sent, and perhaps carried out."""
    safe = request.resend is not Resend.NEVER
    error = SupervisorError(
        ErrorCode.SUBMISSION_INDETERMINATE,
        f"the {request.verb} was sent, and may have been carried out: {lost.why}",
        phase=Phase.CONNECT,
        retryable=safe,
        hint="send it again with the same request id: it never runs twice"
        if safe
        else "`inspect` and `events` of the run tell whether it was",
        details={"verb": request.verb, **request.subject},
    )
    error.__cause__ = lost
    return error


def odd_answer(verb: str) -> SupervisorError:
    """``INTERNAL``: an answer, but none that this client can read."""
    return SupervisorError(
        ErrorCode.INTERNAL,
        f"the service's answer to {verb} is not what this client expects",
        phase=Phase.READ,
        hint="client and service may be of different versions: upgrade the older one",
        details={"verb": verb},
    )


def closed() -> SupervisorError:
    """``SUPERVISOR_CLOSED``: this client was."""
    return SupervisorError(
        ErrorCode.SUPERVISOR_CLOSED, "the client is closed", phase=Phase.CONNECT, hint="connect again"
    )


def forked() -> SupervisorError:
    """``FORKED_COPY``: its connections are the original's."""
    return SupervisorError(
        ErrorCode.FORKED_COPY,
        "this client was made before a fork; the copy must not use it",
        phase=Phase.CONNECT,
        hint="connect anew in the new process",
    )
