"""Find the service's socket from the state directory alone, and connect to nobody else's."""

from __future__ import annotations

import os
import socket
import struct
from dataclasses import dataclass

from ..model.errors import ErrorCode, Phase, SupervisorError, invalid
from ..process.places import SOCKET_NAME, SOCKET_VARIABLE, pointed_to, state_directory
from ..process.short_path import short_path

_UCRED = struct.Struct("3i")  # pid, uid, gid (unix(7))


@dataclass(frozen=True, slots=True)
class Candidate:
    """A path where the service may listen.  ``pointed``: by the pointer file, which may be out of date."""

    path: str
    pointed: bool = False


@dataclass(frozen=True, slots=True)
class Place:
    """A state directory, or a socket that was named outright.  Paths are absolute."""

    state_dir: str
    socket: str | None

    @classmethod
    def of(cls, state_dir: str | os.PathLike[str] | None, socket: str | os.PathLike[str] | None) -> Place:
        """The nearest word counts: ``socket``, ``state_dir``, ``$DURABLE_SUPERVISOR_SOCKET``, the default.

        Raises ``STATE_DIR_REFUSED``, ``INVALID_REQUEST`` for what is no path.
        """
        if socket is None and state_dir is None:
            socket = os.environ.get(SOCKET_VARIABLE) or None
        return cls(state_directory(state_dir), None if socket is None else _absolute(socket))

    def candidates(self) -> list[Candidate]:
        """Where to try, in this order; looked up anew each time, for a service may come back elsewhere."""
        if self.socket is not None:
            return [Candidate(self.socket)]
        pointed = pointed_to(self.state_dir)
        default = Candidate(os.path.join(self.state_dir, SOCKET_NAME))
        return [default] if pointed is None else [Candidate(pointed, pointed=True), default]


def open_socket(path: str) -> socket.socket:
    """A non-blocking connection.

    Raises OSError: BlockingIOError when so many are waiting that it must be tried again a
    little later.  Raises ``PEER_DENIED`` when somebody listens there who must not be told secrets.
    """
    folder, name = os.path.split(path)
    with short_path(folder) as place:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            sock.connect(f"{place}/{name}")
            _check_peer(sock, os.stat(place).st_uid, path)
        except BaseException:
            sock.close()
            raise
        return sock


def is_trusted(listener: int, own: int, directory: int) -> bool:
    """May the uid that listens see what we send, secrets included?

    Our own and root could read it anyway.  Whoever owns the socket's directory decides what stands
    in it, and the caller chose the directory; in a shared one (``/tmp``) that is root, so that a
    socket put there by anybody else is refused.
    """
    return listener in (own, 0, directory)


def _check_peer(sock: socket.socket, directory: int, path: str) -> None:
    # Of a connection to a listening socket these are the credentials of whoever called listen(2).
    _, uid, _ = _UCRED.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))
    if not is_trusted(uid, os.geteuid(), directory):
        raise SupervisorError(
            ErrorCode.PEER_DENIED,
            f"user id {uid} listens at the socket, and is neither you, nor root, nor the directory's owner",
            phase=Phase.CONNECT,
            hint="find out who put it there; a service for several users belongs in a directory of its own",
            details={"socket": path, "uid": uid},
        )


def _absolute(path: str | os.PathLike[str]) -> str:
    if not isinstance(path, str | bytes | os.PathLike):
        raise invalid("socket", "is not a path", "give the socket's path")
    text = os.fsdecode(path)
    if not text or "\0" in text:
        raise invalid("socket", "is empty or contains a NUL byte", "give the socket's path")
    return os.path.abspath(os.path.expanduser(text))
