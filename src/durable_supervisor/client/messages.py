"""What an attached viewer sends, and what the answers to it mean."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Final

from ..model.answers import ControlReceipt
from ..model.errors import ErrorCode, Phase, SupervisorError
from .failures import AWAY, LostError, indeterminate, odd_answer
from .request import Form, Request, run_path, with_query

# The service is away, about to go, or crowded: whoever comes next may have a viewer back.
MAY_RETURN: Final = AWAY | {ErrorCode.BUSY}

_PIECE: Final = 1024 * 1024


def input_target(run: str, writer: str) -> str:
    """Where a WebSocket for input alone is opened; ``writer``: ``ask`` or ``steal`` the lease."""
    return with_query(run_path(run, "attach"), [("events", "false"), ("writer", writer)])


def input_messages(data: bytes, *, eof: bool) -> Iterator[tuple[str, Form]]:
    """At least one; a piece of stdin is at most a MiB."""
    for begin in range(0, len(data), _PIECE) if data or eof else [0]:
        piece = data[begin : begin + _PIECE]
        following = len(data) - begin - len(piece)
        yield "stdin", {"base64": base64.b64encode(piece).decode("ascii"), "following": following}
    if eof:
        yield "eof", {}


def control_receipt(kind: str, form: Form) -> ControlReceipt:
    """Raises ``INTERNAL`` for what cannot be read."""
    try:
        return ControlReceipt.from_dict(
            {name: value for name, value in form.items() if name not in ("type", "id")}
        )
    except KeyError as cause:
        raise odd_answer(kind) from cause


def perhaps_done(kind: str, run: str) -> SupervisorError:
    """``SUBMISSION_INDETERMINATE``: the connection ended before the answer."""
    asked = Request(kind, "GET", "attach", subject={"run_id": run})
    return indeterminate(asked, LostError("it ended the connection", sent=True))


def not_confirmed(what: str, run: str, seconds: float) -> SupervisorError:
    """``NOT_CONFIRMED``: no answer in time."""
    return SupervisorError(
        ErrorCode.NOT_CONFIRMED,
        f"the {what} of run {run} was not confirmed within {seconds:g} s",
        phase=Phase.CONTROL,
        retryable=False,
        hint="it may still be carried out; `events` of the run tell",
        details={"run_id": run},
    )
