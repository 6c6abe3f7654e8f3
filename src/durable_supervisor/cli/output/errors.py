"""Errors as the command line shows them: one line, or one JSON document, on stderr."""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress

from durable_supervisor.model.errors import ErrorCode, Phase, SupervisorError
from durable_supervisor.model.tokens import redact_tokens, without_tokens

from ..main import PROGRAM, called_name
from . import exit_codes, out
from .escape import escape_text
from .fields import by_option

DEBUG_VARIABLE = "DURABLE_SUPERVISOR_DEBUG"


def report(error: BaseException, *, as_json: bool) -> int:
    """Print the error and return the exit code.  A traceback only with DURABLE_SUPERVISOR_DEBUG=1."""
    if os.environ.get(DEBUG_VARIABLE) == "1":
        import traceback

        traceback.print_exception(error, file=sys.stderr)
    known = as_supervisor_error(error)
    print_error(known, as_json=as_json)
    return exit_codes.of_error(known.code)


def print_error(error: SupervisorError, *, as_json: bool) -> None:
    """``error: CODE: message (hint)``, or ``{"error": {...}}``; exactly one line."""
    if as_json:
        line = json.dumps({"error": without_tokens(error.to_dict())}, default=str)
    else:
        message, hint = by_option(error)
        hint = f" ({hint.replace(f'{PROGRAM} ', f'{called_name()} ')})" if hint else ""
        line = f"error: {escape_text(redact_tokens(f'{error.code.value}: {message}{hint}'))}"
    with suppress(OSError, SupervisorError):  # nobody hears us: the exit code still tells
        out.note(line)


def as_supervisor_error(error: BaseException) -> SupervisorError:
    """The product's own error, or the nearest one to something unforeseen."""
    if isinstance(error, SupervisorError):
        return error
    if isinstance(error, MemoryError):
        return SupervisorError(ErrorCode.INTERNAL, "out of memory", retryable=True, hint="free some memory")
    if isinstance(error, ImportError):
        from durable_supervisor.model.extras import extra_missing, extra_of, library_of

        extra = extra_of(error)
        if extra is not None:
            return extra_missing("this", library_of(error), extra, Phase.VALIDATE)
    if isinstance(error, OSError):
        where = f": {os.fsdecode(error.filename)}" if isinstance(error.filename, str | bytes) else ""
        return SupervisorError(
            ErrorCode.INTERNAL,
            f"{error.strerror or type(error).__name__}{where}",
            hint="run 'durable-supervisor doctor' to check the state directory",
            details={"errno": error.errno},
        )
    return SupervisorError(
        ErrorCode.INTERNAL,
        f"{type(error).__name__} inside the command",
        hint=f"run it again with {DEBUG_VARIABLE}=1 and report what it prints",
    )


def usage(message: str, command: str) -> SupervisorError:
    """A mistake in the words of the command line."""
    return SupervisorError(
        ErrorCode.INVALID_REQUEST,
        message.strip().rstrip("."),
        phase=Phase.VALIDATE,
        hint=f"see '{command} --help'",
    )
