"""The worker's control socket and whoever is connected to it."""

from __future__ import annotations

import os
import resource
import socket
import struct
import time
from collections.abc import Callable

from ..process.channel import FrameError, FrameParser, encode_frame, encode_head
from ..process.failpoints import failpoint
from ..process.shortage import is_shortage
from .poller import READ, WRITE, Poller

_UCRED = struct.Struct("@iII")
_BACKLOG = 64
_CHUNK = 64 * 1024
_MAX_CONNECTIONS = 128
_MAX_JSON = 64 * 1024
_MAX_BLOB = 1024 * 1024  # a piece of stdin
_MAX_UNSENT = 256 * 1024
_PAUSE = 0.1

OnMessage = Callable[["Connection", dict[str, object], bytes], None]


class Connection:
    """One peer.  Its mistakes and its slowness cost only itself."""

    def __init__(self, peer: socket.socket, pid: int, uid: int) -> None:
        self.pid = pid
        self.uid = uid
        self.watching: int | None = None  # answer once the head is beyond this
        self.token = object()  # tells it from all others, also after its end
        self._socket = peer
        self._parser = FrameParser(_MAX_JSON, _MAX_BLOB)
        self._unsent = bytearray()
        self._mask = READ  # what is waited for
        self._poller: Poller | None = None
        self.open = True
        peer.setblocking(False)

    def start(self, poller: Poller, on_message: OnMessage) -> None:
        self._poller = poller
        self._on_message = on_message
        poller.watch(self._socket.fileno(), READ, lambda _: self._ready())

    def send(self, message: dict[str, object]) -> None:
        """Queue an answer.  A peer that does not read its answers is dropped."""
        self.send_frame(encode_frame(message))

    def send_frame(self, frame: bytes) -> None:
        """As `send`, of a message that is encoded already."""
        if not self.open:
            return
        waits = bool(self._unsent)  # then the poller says when to go on
        self._unsent += frame
        if not waits:
            self._flush()
        if len(self._unsent) > _MAX_UNSENT:
            self.close()

    @property
    def between_frames(self) -> bool:
        """Is it open, all sent, and nothing heard of a frame whose rest is to come?"""
        return self.open and not self._unsent and self._parser.between_frames

    def unwatch(self) -> None:
        """Hear nothing more from it; what is sent goes out at once, or never."""
        if self._poller is not None and self.open:
            self._poller.forget(self._socket.fileno())
        self._poller = None

    def close(self) -> None:
        if self.open:
            self.open = False
            if self._poller is not None:
                self._poller.forget(self._socket.fileno())
            self._socket.close()

    def _ready(self) -> None:
        if self._unsent:
            self._flush()
        try:
            data = self._socket.recv(_CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.close()
            return
        try:
            for message, blob in self._parser.feed(data):
                self._on_message(self, message, blob)
        except FrameError:
            self.close()

    def _flush(self) -> None:
        try:
            sent = self._socket.send(self._unsent)
            del self._unsent[:sent]
        except BlockingIOError:
            pass
        except OSError:
            self.close()
            return
        mask = READ | WRITE if self._unsent else READ
        if self._poller is not None and mask != self._mask:
            self._mask = mask
            self._poller.watch(self._socket.fileno(), mask, lambda _: self._ready())


def _credentials(peer: socket.socket) -> tuple[int, int]:
    """Pid and uid of whoever made the other end (unix(7), SO_PEERCRED)."""
    pid, uid, _gid = _UCRED.unpack(peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))
    return int(pid), int(uid)


class ControlSocket:
    """Listens at the run's socket path; only the worker's own user (and root) gets in.

    Where there is no run (``nowhere``) nobody is to find it: its name is one that the kernel makes up.  All
    else is done as for a run, call by call, since a `model` is to have the memory of those that have one.
    """

    def __init__(self, path: str, poller: Poller, on_message: OnMessage, *, nowhere: bool = False) -> None:
        self.connections: list[Connection] = []
        self._path = path
        self._nowhere = nowhere
        self._poller = poller
        self._on_message = on_message
        self._listener: socket.socket | None = None
        self._inode = 0

    def adopt(self, peer: socket.socket) -> Connection:
        """The supervisor's own channel is a connection like any other."""
        return self._add(Connection(peer, *_credentials(peer)))

    def ensure(self) -> None:
        """Make the socket, or make it anew when its file was deleted.  Failing is no harm: tried again."""
        if self._listener is not None:
            if self._in_place():
                return
            self._hang_up()
        try:
            self._listen()
        except OSError:
            self._listener = None

    @property
    def awaited(self) -> bool:
        """Does anybody wait for an event right now?"""
        return any(connection.watching is not None for connection in self.connections)

    def wake(self, head: int) -> None:
        """Answer everyone who waits for an event beyond what they have."""
        for connection in self.connections:
            if connection.watching is not None and head > connection.watching:
                connection.watching = None
                connection.send_frame(encode_head(head))

    def remove(self) -> None:
        """Remove the socket file, if it still is ours."""
        if self._listener is not None and self._in_place():
            try:
                os.unlink(self._path)
            except OSError:
                pass

    def close(self, but: Connection | None = None) -> None:
        """Remove the socket file, and let everyone go, but perhaps one."""
        self.remove()
        self._hang_up()
        for connection in self.connections:
            if connection is not but:
                connection.close()
        self.connections = [one for one in self.connections if one is but]

    def _listen(self) -> None:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        folder, name = os.path.split(self._path)
        # A path in sun_path ends at 107 bytes (unix(7)): bind through the directory's descriptor.
        directory = os.open("/" if self._nowhere else folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        previous = os.umask(0o177)
        try:
            try:
                os.unlink(self._path)  # of an earlier attempt, whose worker is gone
            except FileNotFoundError:
                pass
            listener.bind("" if self._nowhere else f"/proc/self/fd/{directory}/{name}")
        finally:
            os.umask(previous)
            os.close(directory)
        failpoint("worker.socket_bound")
        listener.listen(_BACKLOG)
        listener.setblocking(False)
        self._inode = os.stat("/" if self._nowhere else self._path).st_ino
        self._listener = listener
        self._watch(READ)

    def _hang_up(self) -> None:
        if self._listener is not None:
            self._poller.forget(self._listener.fileno())
            self._listener.close()
            self._listener = None

    def _in_place(self) -> bool:
        try:
            return os.stat(self._path).st_ino == self._inode
        except OSError:
            return False

    def _watch(self, mask: int) -> None:
        if self._listener is not None:
            self._poller.watch(self._listener.fileno(), mask, lambda _: self._accept())

    def _accept(self) -> None:
        assert self._listener is not None
        try:
            peer, _ = self._listener.accept()
        except BlockingIOError:
            return  # it has hung up
        except OSError as error:
            if is_shortage(error):  # the peer keeps the listener readable: look away for a moment
                self._watch(0)
                self._poller.at("accept", time.monotonic() + _PAUSE, lambda: self._watch(READ))
            return
        pid, uid = _credentials(peer)
        self.connections = [one for one in self.connections if one.open]
        if uid not in (0, os.getuid()) or len(self.connections) >= _most_connections():
            peer.close()
            return
        self._add(Connection(peer, pid, uid))

    def _add(self, connection: Connection) -> Connection:
        self.connections.append(connection)
        connection.start(self._poller, self._on_message)
        return connection


def _most_connections() -> int:
    """Descriptors that peers use up would be missing for the log and for looking at the tree."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MAX_CONNECTIONS if soft == resource.RLIM_INFINITY else min(_MAX_CONNECTIONS, soft // 4)
