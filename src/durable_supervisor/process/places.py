"""Where the state directory is, and how the service's socket is found from it."""

from __future__ import annotations

import os
import stat

from ..model.errors import ErrorCode, Phase, SupervisorError

STATE_DIR_VARIABLE = "DURABLE_SUPERVISOR_STATE_DIR"
SOCKET_VARIABLE = "DURABLE_SUPERVISOR_SOCKET"
SOCKET_NAME = "supervisor.sock"  # in the state directory, where the service listens by default
POINTER_NAME = "supervisor.socket"  # {"socket": "<absolute path>"}: where it listens instead
_POINTER_BYTES = 64 * 1024


def state_directory(chosen: str | os.PathLike[str] | None) -> str:
    """The argument, else ``$DURABLE_SUPERVISOR_STATE_DIR``, else the user's state directory; absolute.

    Raises ``STATE_DIR_REFUSED`` for what is no path, and where a default has no home to be in.
    """
    if not isinstance(chosen, str | bytes | os.PathLike | None):
        raise _no_path("is not a path", "give the directory's path")
    path = os.fsdecode(chosen) if chosen is not None else os.environ.get(STATE_DIR_VARIABLE, "")
    if not path:
        if chosen is not None:  # "$DIR" of a script that never set it does not mean everybody's directory
            raise _no_path("is empty", "name a directory, or leave it out for the default one")
        path = _default()
    if "\0" in path:
        raise _no_path("contains a NUL byte", "choose another path")
    return os.path.realpath(os.path.expanduser(path))


def _default() -> str:
    import platformdirs

    try:
        return platformdirs.user_state_dir("durable_supervisor", appauthor=False)
    except RuntimeError:  # a user id without an account, in a container say, and no HOME
        hint = "set HOME, or choose a directory with --state-dir"
        raise _no_path("has no default, for this user has no home directory", hint) from None


def may_be_served(state_dir: str) -> bool:
    """Is there a trace of a service?  Without one there is none, and nobody need load a client to ask."""
    return any(os.path.lexists(os.path.join(state_dir, name)) for name in (SOCKET_NAME, POINTER_NAME))


def pointed_to(state_dir: str) -> str | None:
    """What the directory's pointer file names; None where there is none that can be believed."""
    try:
        fd = os.open(
            os.path.join(state_dir, POINTER_NAME), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        )
    except OSError:
        return None
    try:
        status = os.fstat(fd)
        # In a directory that is open to others, anybody could have written one.
        if not stat.S_ISREG(status.st_mode) or status.st_uid not in (os.geteuid(), 0):
            return None
        return _path_in(os.read(fd, _POINTER_BYTES))
    except OSError:
        return None
    finally:
        os.close(fd)


def _path_in(content: bytes) -> str | None:
    import json  # hardly ever is there a pointer, and a command line has a worker to start first

    try:
        form = json.loads(content)
        path = form.get("socket") if isinstance(form, dict) else None
        absolute = isinstance(path, str) and os.path.isabs(path) and b"\0" not in os.fsencode(path)
    except (ValueError, RecursionError):  # no JSON, or no name that a file could have
        return None
    return path if absolute else None


def _no_path(problem: str, hint: str) -> SupervisorError:
    return SupervisorError(
        ErrorCode.STATE_DIR_REFUSED,
        f"state_dir {problem}",
        phase=Phase.OPEN,
        hint=hint,
        details={"path": "state_dir"},
    )
