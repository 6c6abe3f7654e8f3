"""The service: one supervisor's verbs over a Unix socket.

A guest in the loop it is started in, like the supervisor itself: no signal
handlers, no logging set up.  So the daemon and an application that embeds a
supervisor serve the same socket in the same way.
"""

from __future__ import annotations

import grp
import os
import resource
from collections.abc import Sequence
from socket import socket as Socket  # noqa: N812  the name is an argument's here

from aiohttp import web

from ..model.errors import invalid
from ..process import forks
from ..process.places import SOCKET_NAME
from ..supervisor.state.state_dir import unusable
from ..supervisor.supervisor import Supervisor
from .app import make_app
from .requests.peers import Caller, callers_by_uid
from .service.metrics import Metrics
from .service.service import HEARTBEAT_SECONDS, STALL_SECONDS, Kind, Phase, Service
from .sockets.accept import Acceptor
from .sockets.keeper import Keeper
from .sockets.pointer import remove_pointer, write_pointer
from .sockets.socket_file import SocketFile

DEFAULT_CONNECTIONS = 512
DEFAULT_MODE = 0o600
DRAIN_SECONDS = 10.0
_LEAST_CONNECTIONS = 4
_MOMENT = 0.05


class Server:
    """Serves ``supervisor`` from `start` to `close`.  The supervisor stays the caller's to close.

    ``socket``: where to listen instead of in the state directory, an absolute path.
    ``mode`` and ``group`` (a name or a gid) of the socket's file say who may connect;
    ``callers`` who is admitted then.  ``kind``: a ``daemon`` is given time to come back when it
    goes, before anybody takes its place.  ``heartbeat`` and ``stall`` are seconds.

    Raises ``INVALID_REQUEST`` and ``STATE_DIR_REFUSED`` for what cannot be.
    """

    def __init__(
        self,
        supervisor: Supervisor,
        *,
        socket: str | None = None,
        mode: int = DEFAULT_MODE,
        group: str | int | None = None,
        callers: Sequence[Caller] = (),
        max_connections: int = DEFAULT_CONNECTIONS,
        kind: Kind = "embedded",
        heartbeat: float = HEARTBEAT_SECONDS,
        stall: float = STALL_SECONDS,
        metrics: Metrics | None = None,
    ) -> None:
        default = os.path.join(supervisor.state_dir, SOCKET_NAME)
        self.path = os.path.abspath(socket) if socket is not None else default
        self._state_dir = supervisor.state_dir
        self._elsewhere = self.path != default
        self._file = SocketFile(self.path, mode, _group(group))
        self._service = Service(
            supervisor,
            callers_by_uid(os.geteuid(), callers),
            _connections(max_connections),
            Metrics(supervisor) if metrics is None else metrics,
            kind=kind,
            heartbeat=heartbeat,
            stall=stall,
        )
        self._runner: web.AppRunner | None = None
        self._acceptor: Acceptor | None = None
        self._keeper = Keeper(self._file, self._listen)
        self._listener: Socket | None = None

    @property
    def phase(self) -> Phase:
        """``accepting``, or ``draining``: nothing more is started."""
        return self._service.phase

    @property
    def connections(self) -> int:
        """Clients that are connected."""
        return 0 if self._acceptor is None else self._acceptor.connections

    @property
    def waiting(self) -> int:
        """Calls that stay: followers, attached viewers, waiters."""
        return self._service.waiting

    async def start(self) -> None:
        """Listen.  Raises ``SOCKET_IN_USE``, ``STATE_DIR_REFUSED``."""
        self._runner = web.AppRunner(
            make_app(self._service), handle_signals=False, access_log=None, handler_cancellation=True
        )
        await self._runner.setup()
        if self._runner.server is None:
            raise RuntimeError("the runner has no server after its setup")
        self._acceptor = Acceptor(self._service, self._runner.server)
        try:
            self._listen(self._file.bind())
            self._point()
        except BaseException:
            await self.close(drain=0)
            raise
        self._keeper.start()

    async def drain(self) -> None:
        """Start nothing more, and send followers away; everything else is answered as before."""
        self._service.draining.set()

    async def settle(self, timeout: float = DRAIN_SECONDS) -> None:
        """Wait for starts and controls under way; meanwhile everybody is answered."""
        await self._service.finish(timeout)

    async def close(self, drain: float = DRAIN_SECONDS) -> None:
        """Let go of the socket, and of everybody after at most ``drain`` seconds.  Idempotent."""
        await self.drain()
        self._keeper.close()
        if self._file.in_place() and self._elsewhere:
            remove_pointer(self._state_dir)
        self._file.remove()
        self._stop_listening()
        if self._acceptor is not None:
            await self._acceptor.settled()
        runner, self._runner = self._runner, None
        if runner is not None:
            if runner.server is not None:
                runner.server.pre_shutdown()
                # It waits once for the answers, and once more for what it has cancelled then.
                await runner.server.shutdown(max(drain / 2, _MOMENT))
            await runner.cleanup()
        await self._service.finish(drain)

    def _listen(self, listener: Socket) -> None:
        """From now on at this one; who has come to an earlier one in time is served too."""
        self._stop_listening()
        if self._acceptor is not None:
            self._acceptor.listen(listener)
            self._listener = listener

    def _stop_listening(self) -> None:
        if self._acceptor is not None and self._listener is not None:
            self._acceptor.leave(self._listener)
            forks.close_socket(self._listener)
            self._listener = None

    def _point(self) -> None:
        if not self._elsewhere:
            remove_pointer(self._state_dir)  # of an earlier service, which listened elsewhere
            return
        try:
            write_pointer(self._state_dir, self.path)
        except OSError as error:
            raise unusable(self._state_dir, error) from error


def _group(group: str | int | None) -> int | None:
    if group is None or isinstance(group, int):
        return group
    try:
        return int(group) if group.isascii() and group.isdigit() else grp.getgrnam(group).gr_gid
    except (KeyError, ValueError):
        raise invalid("socket_group", "names no group of this system") from None


def _connections(wanted: int) -> int:
    """At most a quarter of the descriptors: a follower takes two, and runs need theirs."""
    if isinstance(wanted, bool) or not isinstance(wanted, int) or wanted < _LEAST_CONNECTIONS:
        raise invalid("max_connections", f"must be a whole number of at least {_LEAST_CONNECTIONS}")
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return wanted if soft == resource.RLIM_INFINITY else max(_LEAST_CONNECTIONS, min(wanted, soft // 4))
