"""What is said of a RUN that names none: where it was looked for, and what may have been meant."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from durable_supervisor.model.errors import ErrorCode, SupervisorError, invalid
from durable_supervisor.model.ids import RUN_ID_LENGTH

if TYPE_CHECKING:
    from collections.abc import Callable

_SHOWN: Final = 4096  # characters: a path that is cut names another file


def is_bundle(run: str) -> bool:
    """Does the word name a file?  What may be the beginning of a run id never does."""
    return "/" in run or (not run.isalnum() and os.path.isfile(run))


def check_bundle(path: str) -> None:
    """Raises INVALID_REQUEST, naming the path, where there is no such file."""
    if not os.path.exists(path):
        raise no_file("run", path, "a RUN with a / in it is the path of a bundle; check it")


def no_file(field: str, path: str, hint: str) -> SupervisorError:
    """An INVALID_REQUEST that names what was looked for: a person's own path is no secret."""
    error = invalid(field, "names no file", hint)
    error.message = f"there is no file {path[:_SHOWN]!r}"
    return error


def explain(error: SupervisorError, place: str, run_of_request: Callable[[str], str | None]) -> None:
    """Words of the command line for an UNKNOWN_RUN; another error is left as it is.

    ``place``: the state directory.  Who gave a request id for a run id is told the run id.
    """
    if error.code is not ErrorCode.UNKNOWN_RUN:
        return
    asked = str(error.details.get("run_id"))
    if not asked:
        error.message = "RUN is empty"
        error.hint = "a variable that was never set? `durable-supervisor list` shows the runs"
        return
    if is_bundle(asked):
        error.message = f"{asked!r} is no run's id"
        error.hint = "a bundle can be read, nothing else: inspect, events, logs, replay, report, list"
        return
    whole = len(asked) == RUN_ID_LENGTH or not asked.isalnum()
    error.message = f"no run {'' if whole else 'whose id begins with '}{asked!r} in {place}"
    run_id = run_of_request(asked)
    if run_id is not None:
        error.hint = f"that is a request id; its run is {run_id}"
    elif os.path.isfile(asked):  # of letters and digits: it might have been the beginning of an id
        error.hint = f"the file of that name is ./{asked}; `durable-supervisor list` shows the runs"
    elif not asked.isalnum():
        error.message += ", and no such file here"
        error.hint = "RUN is a run's id, the beginning of one, or a bundle; see `durable-supervisor list`"
