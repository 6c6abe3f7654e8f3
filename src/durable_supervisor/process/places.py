"""Where the state directory is, and how the service's socket is found from it."""

from __future__ import annotations

import os

from ..model.errors import ErrorCode, Phase, SupervisorError

STATE_DIR_VARIABLE = "DURABLE_SUPERVISOR_STATE_DIR"
SOCKET_VARIABLE = "DURABLE_SUPERVISOR_SOCKET"
SOCKET_NAME = "supervisor.sock"  # in the state directory, where the service listens by default
POINTER_NAME = "supervisor.socket"  # {"socket": "<absolute path>"}: where it listens instead


def state_directory(chosen: str | os.PathLike[str] | None) -> str:
    """The argument, else ``$DURABLE_SUPERVISOR_STATE_DIR``, else the user's state directory; absolute.

    Raises ``STATE_DIR_REFUSED`` for what is no path.
    """
    if not isinstance(chosen, str | bytes | os.PathLike | None):
        raise _no_path("is not a path", "give the directory's path")
    path = os.fsdecode(chosen) if chosen is not None else os.environ.get(STATE_DIR_VARIABLE, "")
    if not path:
        import platformdirs

        path = platformdirs.user_state_dir("durable_supervisor", appauthor=False)
    if "\0" in path:
        raise _no_path("contains a NUL byte", "choose another path")
    return os.path.realpath(os.path.expanduser(path))


def _no_path(problem: str, hint: str) -> SupervisorError:
    return SupervisorError(
        ErrorCode.STATE_DIR_REFUSED,
        f"state_dir {problem}",
        phase=Phase.OPEN,
        hint=hint,
        details={"path": "state_dir"},
    )
