"""The socket's name in the file system: made private, never taken from a living service, kept in place.

Only ECONNREFUSED proves that nobody listens (connect(2)): the kernel knows.  Success,
a full backlog (EAGAIN), a missing permission or silence prove nothing, and then nothing
is removed.
"""

from __future__ import annotations

import errno
import os
import socket
import stat
from contextlib import suppress

from ...model.errors import ErrorCode, Phase, SupervisorError
from ...process import forks
from ...process.short_path import short_path

_BACKLOG = 1024
_LONGEST_NAME = 64  # so that /proc/self/fd/N/.NAME.new fits sun_path (unix(7)) for every descriptor
_ATTEMPTS = 3


class SocketFile:
    """One path that we listen at.  ``mode`` and ``group`` say who may connect."""

    def __init__(self, path: str, mode: int, group: int | None) -> None:
        self.path = path
        self._mode = mode
        self._group = group
        self._made: tuple[int, int] | None = None  # device and inode of our file
        folder, self._name = os.path.split(path)
        self.folder = folder
        if not os.path.isabs(path) or not self._name or len(os.fsencode(self._name)) > _LONGEST_NAME:
            raise _refused(path, f"must be an absolute path whose last part has 1 to {_LONGEST_NAME} bytes")

    def bind(self) -> socket.socket:
        """Listen there.  Raises ``SOCKET_IN_USE``, ``STATE_DIR_REFUSED``; then nothing has changed."""
        try:
            with short_path(self.folder) as directory:
                try:
                    return self._bind(directory, f"{directory}/.{self._name}.new")
                except FileNotFoundError:  # another service makes its own for the same path just now
                    raise in_use(self.path) from None
        except OSError as error:
            raise _refused(self.path, f"cannot be made: {error.strerror}") from error

    def in_place(self) -> bool:
        """Does the path still lead to our socket?"""
        return self._made is not None and _inode(self.path) == self._made

    def remove(self) -> None:
        """Take the name away, unless it is somebody else's by now."""
        if self.in_place():
            with suppress(OSError):
                os.unlink(self.path)
        self._made = None

    def _bind(self, directory: str, temporary: str) -> socket.socket:
        """A socket that listens before it has its name, so that nobody ever finds it refusing."""
        with suppress(FileNotFoundError):
            os.unlink(temporary)  # of a service that was killed just here
        with forks.no_fork:
            listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
            forks.guard(listener.fileno())  # or a forked copy of the host would seem to serve after its death
        try:
            self._listen(listener, temporary)
            made = _inode(temporary)
            self._put_in_place(directory)
            # Only now: the number of a file that is gone may be another's, which is not ours to remove.
            self._made = made
        except BaseException:
            forks.close_socket(listener)
            raise
        finally:
            with suppress(OSError):
                os.unlink(temporary)
        return listener

    def _listen(self, listener: socket.socket, temporary: str) -> None:
        # Linux takes the file's mode from the socket's own: private from the first moment,
        # without changing the process's umask under other threads of the host.
        os.fchmod(listener.fileno(), 0o600)
        listener.bind(temporary)
        if self._group is not None:
            os.chown(temporary, -1, self._group)
        os.chmod(temporary, self._mode)
        listener.listen(_BACKLOG)
        listener.setblocking(False)

    def _put_in_place(self, directory: str) -> None:
        place = f"{directory}/{self._name}"
        for _ in range(_ATTEMPTS):
            try:
                # Unlike a rename, this never replaces anything.
                os.link(f"{directory}/.{self._name}.new", place)
                return
            except FileExistsError:
                self._remove_stale(place)
        raise in_use(self.path)

    def _remove_stale(self, place: str) -> None:
        """Raises ``SOCKET_IN_USE`` unless the socket there is proven to be nobody's."""
        found = _inode(place)
        if found is None:
            return
        if not is_stale(place):
            raise in_use(self.path)
        if _inode(place) == found:  # not one that has taken its place just now
            with suppress(FileNotFoundError):
                os.unlink(place)


def is_stale(path: str) -> bool:
    """Is this a socket that nobody listens at any more?  False whenever that is not proven."""
    try:
        if not stat.S_ISSOCK(os.lstat(path).st_mode):
            return False
    except OSError:
        return False
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as probe:
        probe.setblocking(False)  # a full backlog answers EAGAIN at once
        return probe.connect_ex(path) == errno.ECONNREFUSED


def _inode(path: str) -> tuple[int, int] | None:
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def in_use(path: str) -> SupervisorError:
    """``SOCKET_IN_USE``."""
    return SupervisorError(
        ErrorCode.SOCKET_IN_USE,
        f"{_shown(path)} is there already, and nothing proves that nobody listens at it",
        phase=Phase.OPEN,
        retryable=True,
        hint="choose another --socket; remove the file only when you know that no service uses it",
        details={"path": _shown(path)},
    )


def _refused(path: str, problem: str) -> SupervisorError:
    return SupervisorError(
        ErrorCode.STATE_DIR_REFUSED,
        f"the socket {_shown(path)} {problem}",
        phase=Phase.OPEN,
        hint="choose another path with --socket",
        details={"path": _shown(path)},
    )


def _shown(path: str) -> str:
    return path.encode("utf-8", "backslashreplace").decode()
