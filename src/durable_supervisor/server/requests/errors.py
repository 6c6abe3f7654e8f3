"""Every failure as one typed document, with the HTTP status that belongs to its code."""

from __future__ import annotations

import json
from collections.abc import Mapping

from aiohttp import web

from ...model.errors import ErrorCode, Phase, SupervisorError, invalid

STATUS: dict[ErrorCode, int] = {
    ErrorCode.INVALID_REQUEST: 400,
    ErrorCode.IDEMPOTENCY_CONFLICT: 409,
    ErrorCode.IMPORT_CONFLICT: 409,
    ErrorCode.UNKNOWN_RUN: 404,
    ErrorCode.RUN_COLLECTED: 410,
    ErrorCode.AMBIGUOUS_RUN: 409,
    ErrorCode.NOT_STARTED: 409,
    ErrorCode.OUTCOME_UNKNOWN: 409,
    ErrorCode.WAIT_TIMEOUT: 504,
    ErrorCode.CURSOR_AHEAD: 409,
    ErrorCode.NOT_CONFIRMED: 504,
    ErrorCode.NOT_RUNNING: 409,
    ErrorCode.STDIN_CLOSED: 409,
    ErrorCode.NOT_RESOLVABLE: 409,
    ErrorCode.SUPERVISOR_CLOSED: 503,
    ErrorCode.FORKED_COPY: 500,
    ErrorCode.STATE_DIR_IN_USE: 503,
    ErrorCode.STATE_DIR_REFUSED: 503,
    ErrorCode.NO_SPACE: 507,
    ErrorCode.JOURNAL_MISSING: 503,
    ErrorCode.JOURNAL_BEHIND: 503,
    ErrorCode.JOURNAL_MISMATCH: 503,
    ErrorCode.JOURNAL_NEWER: 503,
    ErrorCode.JOURNAL_CORRUPT: 503,
    ErrorCode.JOURNAL_IO: 503,
    ErrorCode.BUSY: 503,
    ErrorCode.CAPACITY_EXHAUSTED: 429,
    ErrorCode.ENFORCEMENT_REFUSED: 409,
    ErrorCode.RUN_FAILED: 409,
    ErrorCode.WRITER_BUSY: 409,
    ErrorCode.PEER_DENIED: 403,
    ErrorCode.OWNER_MISMATCH: 403,
    ErrorCode.UNSUPPORTED_API_VERSION: 400,
    ErrorCode.FRAME_TOO_LARGE: 413,
    ErrorCode.SHUTTING_DOWN: 503,
    ErrorCode.SERVICE_UNAVAILABLE: 503,
    ErrorCode.SUBMISSION_INDETERMINATE: 503,
    ErrorCode.SOCKET_IN_USE: 503,
    ErrorCode.UNSUPPORTED_PLATFORM: 501,
    ErrorCode.EXTRA_MISSING: 501,
    ErrorCode.INTERNAL: 500,
}

RETRY_AFTER = {ErrorCode.BUSY, ErrorCode.CAPACITY_EXHAUSTED, ErrorCode.SHUTTING_DOWN}
_RETRY_SECONDS = "1"
_HEADERS = {"Content-Type": "application/json; charset=utf-8", "Cache-Control": "no-store"}


def to_json(form: Mapping[str, object]) -> bytes:
    """A document on the wire.  ASCII: undecodable names, as lone surrogates, stay valid JSON and UTF-8."""
    return json.dumps(form, allow_nan=False, separators=(",", ":")).encode("ascii")


class ErrorAnswer(web.Response):
    """An error document; ``code`` is for the metrics."""

    def __init__(self, error: SupervisorError, status: int) -> None:
        super().__init__(body=to_json(error_form(error)) + b"\n", status=status, headers=_HEADERS)
        self.code = error.code


def answer(form: Mapping[str, object], status: int = 200) -> web.Response:
    """A JSON answer, which no cache keeps."""
    return answer_text(to_json(form), status)


def answer_text(text: bytes, status: int = 200) -> web.Response:
    """As `answer`, of a document that is JSON already."""
    return web.Response(body=text + b"\n", status=status, headers=_HEADERS)


def error_form(error: SupervisorError) -> dict[str, object]:
    """The error document."""
    return {"error": error.to_dict()}


def error_answer(error: SupervisorError, status: int | None = None) -> ErrorAnswer:
    """The error document, under the status of its code unless ``status`` says otherwise."""
    response = ErrorAnswer(error, STATUS[error.code] if status is None else status)
    if error.code in RETRY_AFTER:
        response.headers["Retry-After"] = _RETRY_SECONDS
    return response


def http_failure(failure: web.HTTPException) -> web.Response:
    """What aiohttp itself refuses: an unknown path, a wrong method, a bad expectation."""
    status = failure.status
    if isinstance(failure, web.HTTPMethodNotAllowed):
        allowed = ", ".join(sorted(failure.allowed_methods))
        response = error_answer(invalid("method", "does not exist for this path", f"use {allowed}"), status)
        response.headers["Allow"] = allowed
        return response
    if isinstance(failure, web.HTTPNotFound):
        problem = "leads nowhere"
        return error_answer(invalid("path", problem, "GET /v1/openapi.json lists all paths"), status)
    return error_answer(invalid("request", f"is refused: {failure.reason}"), status)


def unreadable(status: int) -> web.Response:
    """Not HTTP, or not by the rules; what it said is not repeated."""
    problem = "is no HTTP/1.1 that this service accepts"
    return error_answer(invalid("request", problem, "docs/http.md shows requests that work"), status)


def internal() -> SupervisorError:
    """A bug of ours: the log has it, the caller learns nothing of other callers' data."""
    return SupervisorError(
        ErrorCode.INTERNAL,
        "the service met an error of its own; its log has it",
        phase=Phase.RUN,
        hint="the runs are not affected; `inspect` shows whether the request has been carried out",
    )


def shutting_down() -> SupervisorError:
    """``SHUTTING_DOWN``."""
    return SupervisorError(
        ErrorCode.SHUTTING_DOWN,
        "the service is draining and starts nothing more",
        phase=Phase.ADMIT,
        retryable=True,
        hint="send the same request again once the service is back; the request id is not spent",
    )


def too_large(what: str, limit: int) -> SupervisorError:
    """``FRAME_TOO_LARGE``."""
    return SupervisorError(
        ErrorCode.FRAME_TOO_LARGE,
        f"{what} is larger than {limit} bytes",
        phase=Phase.VALIDATE,
        hint="send less at once; GET /v1/info tells the limits",
        details={"limit": limit},
    )


def crowded(what: str) -> SupervisorError:
    """``BUSY``: every place is taken by somebody at work."""
    return SupervisorError(
        ErrorCode.BUSY,
        f"{what}: no more are taken at the moment",
        phase=Phase.CONNECT,
        retryable=True,
        hint="try again in a moment, or raise --max-connections",
    )
