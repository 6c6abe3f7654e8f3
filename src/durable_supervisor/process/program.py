"""From a requested program to the file that will be executed."""

from __future__ import annotations

import errno
import os
import stat


class StartFailure(OSError):  # noqa: N818  it is an outcome, not a fault
    """The program could not be started; user code never ran.  ``step`` names where."""

    def __init__(self, code: int, step: str, path: str) -> None:
        super().__init__(code, os.strerror(code))
        self.code = code
        self.step = step
        self.path = path


class ConfinementRefused(StartFailure):
    """A required axis could not be enforced, though it seemed possible before; user code never ran."""

    def __init__(self, axis: str, reason: str, path: str) -> None:
        super().__init__(errno.EPERM, "confine", path)
        self.axis = axis
        self.reason = reason


class Stdio:
    """The descriptors the program gets as 0, 1 and 2.  ``terminal``: they are one, of its session."""

    __slots__ = ("stderr", "stdin", "stdout", "terminal")

    def __init__(self, stdin: int, stdout: int, stderr: int, *, terminal: bool = False) -> None:
        self.stdin = stdin
        self.stdout = stdout
        self.stderr = stderr
        self.terminal = terminal


class Program:
    """What to execute: ``path`` is resolved, ``argv[0]`` stays as the caller gave it."""

    __slots__ = ("argv", "cwd", "env", "path", "umask")

    def __init__(self, path: str, argv: list[str], cwd: str, env: dict[str, str], umask: int) -> None:
        self.path = path
        self.argv = argv
        self.cwd = cwd
        self.env = env
        self.umask = umask


def resolve(requested: str, cwd: str, path_variable: str) -> str:
    """The file that execve(2) will get for ``argv[0]``, absolute.

    A name with a slash is relative to ``cwd``; any other is looked up on the
    program's own PATH (an empty entry means ``cwd``, as in execvp(3)).
    Raises StartFailure: ENOENT, EACCES, ENOTDIR, …
    """
    if "/" in requested:
        found = os.path.join(cwd, requested)
        _check(found)
        return found
    refused: StartFailure | None = None
    for folder in path_variable.split(":"):
        if not folder.startswith("/"):
            folder = os.path.join(cwd, folder)
        candidate = f"{folder.rstrip('/')}/{requested}"
        if not os.access(candidate, os.F_OK):
            continue  # in most folders: asked in the way that raises nothing
        try:
            _check(candidate)
        except StartFailure as failure:
            # A file that may not be executed says more than one that is not there.
            if failure.code == errno.EACCES:
                refused = failure
            continue
        return candidate
    raise refused or StartFailure(errno.ENOENT, "resolve", requested)


def canonical(path: str) -> str:
    """What `os.path.realpath` says of a file, by what the kernel knows of it: three calls, not two for each
    part of the path.
    """
    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return os.path.realpath(path)
    try:
        found = os.readlink(f"/proc/self/fd/{fd}")
    except OSError:
        found = ""
    finally:
        os.close(fd)
    # Of a file that was removed, or is out of our reach, it tells what is no path (proc(5)).
    return os.path.realpath(path) if not found.startswith("/") or found.endswith(" (deleted)") else found


def check_cwd(cwd: str) -> None:
    """Raises StartFailure when the program could not be started in this directory."""
    try:
        if not stat.S_ISDIR(os.stat(cwd).st_mode):
            raise StartFailure(errno.ENOTDIR, "cwd", cwd)
        if not os.access(cwd, os.X_OK):
            raise StartFailure(errno.EACCES, "cwd", cwd)
    except StartFailure:
        raise
    except OSError as error:
        raise StartFailure(error.errno or errno.EIO, "cwd", cwd) from None


def _check(path: str) -> None:
    try:
        mode = os.stat(path).st_mode
    except OSError as error:
        raise StartFailure(error.errno or errno.EIO, "resolve", path) from None
    if not stat.S_ISREG(mode) or not os.access(path, os.X_OK):
        raise StartFailure(errno.EACCES, "resolve", path)
