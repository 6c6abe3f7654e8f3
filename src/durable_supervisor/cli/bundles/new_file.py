"""A file that is there whole or not at all."""

from __future__ import annotations

import errno
import os
import secrets
from contextlib import suppress
from types import TracebackType
from typing import Self

from durable_supervisor.model.errors import SupervisorError, invalid

from ..output import out

_MODE = 0o600
_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS)


class NewFile:
    """Written beside its place, 0600, and moved there by `keep`; without that nothing is left.

    ``-`` is stdout, where what is written is written.  Raises ``INVALID_REQUEST`` for a
    place that is taken (unless ``force``) or that cannot be written to.
    """

    def __init__(self, path: str, *, force: bool = False) -> None:
        self.path = path
        self.size = 0
        self._force = force
        self._fd = out.STDOUT
        self._temporary: str | None = None

    def __enter__(self) -> Self:
        if self.path == "-":
            return self
        if not self._force and os.path.lexists(self.path):
            raise _taken()
        temporary = f"{self.path}.{secrets.token_hex(6)}.part"
        try:
            self._fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _MODE)
        except (OSError, ValueError) as problem:
            raise _unusable(problem) from problem
        self._temporary = temporary
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.path == "-":
            return
        os.close(self._fd)
        if self._temporary is not None:
            with suppress(OSError):
                os.unlink(self._temporary)

    def write(self, data: bytes) -> None:
        """All of it."""
        if self.path == "-":
            out.write_bytes(data)
        else:
            rest = memoryview(data)
            try:
                while rest:
                    rest = rest[os.write(self._fd, rest) :]
            except OSError as problem:
                raise _unusable(problem) from problem
        self.size += len(data)

    def keep(self) -> None:
        """It is complete: sync it and give it its name."""
        if self._temporary is None:
            return
        try:
            os.fsync(self._fd)
            if self._force:
                os.replace(self._temporary, self.path)
            else:
                _move_to_free_place(self._temporary, self.path)
        except FileExistsError:
            raise _taken() from None
        except OSError as problem:
            raise _unusable(problem) from problem
        self._temporary = None


def _move_to_free_place(temporary: str, path: str) -> None:
    """Unlike rename(2), link(2) never goes over what came meanwhile; not every file system has it."""
    try:
        os.link(temporary, path)
    except OSError as problem:
        if problem.errno not in _NO_LINKS:
            raise
        if os.path.lexists(path):
            raise FileExistsError(path) from None
        os.rename(temporary, path)
    else:
        os.unlink(temporary)


def _taken() -> SupervisorError:
    return invalid("output", "is there already", "give another name, or --force")


def _unusable(problem: Exception) -> SupervisorError:
    reason = getattr(problem, "strerror", None) or "is not a usable path"
    return invalid("output", f"cannot be written: {reason}", "check the path")
