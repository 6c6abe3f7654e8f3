"""The facts of the calling process that a run starts from, as a start by socket carries them."""

from __future__ import annotations

import os

from ..model.command import Command
from ..model.environment import inherited_names
from ..model.errors import ErrorCode, Phase, SupervisorError
from ..process.caller import outer_run, own_directory, own_variables, read_umask


def host_facts(command: Command) -> dict[str, object]:
    """So that a request is the same, and does the same, as in a supervisor embedded here.

    Of the environment only what the program would be given, never the whole of it.  Raises
    ``BUSY`` where the process has no descriptor left to read them with.
    """
    try:
        umask = read_umask()
    except OSError as error:
        raise SupervisorError(
            ErrorCode.BUSY,
            f"this process cannot open another file: {error.strerror}",
            phase=Phase.ADMIT,
            retryable=True,
            hint="close some descriptors, or raise the limit (ulimit -n)",
        ) from error
    return {
        "environ": own_variables(sorted(inherited_names(command))),
        "cwd": own_directory(),
        "umask": umask,
        "nested_in": outer_run(os.environ),
    }
