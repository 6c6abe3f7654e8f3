"""The life of ``durable-supervisor serve``: own the directory, listen, drain, let go.

Nothing here harms a run: the service may be ended at any moment, by any means, and
the next one finds every run as it is.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final, TypeVar

from ... import __version__
from ...model.answers import ShutdownReport
from ...model.errors import ErrorCode, SupervisorError, invalid
from ...process import open_files
from ...supervisor.loop.logs import logger
from ...supervisor.slots.slots import DEFAULT_QUEUED_RUNS
from ...supervisor.supervisor import OWNER_WAIT, Supervisor
from ..requests.peers import Caller
from ..server import DEFAULT_CONNECTIONS, DEFAULT_MODE, Server
from .neighbour import refuse_if_served
from .notify import Notifier, keep_pulse

T = TypeVar("T")

SETTLE_SECONDS: Final = 15.0  # for starts under way: longer than a worker's first word may take
STOP_SECONDS: Final = 30.0  # for runs, with stop_runs_on_exit: more than the usual grace and kill rounds


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """How to serve.  ``None``: the default directory or socket; no limit; no group."""

    state_dir: str | None = None
    socket: str | None = None
    socket_mode: int = DEFAULT_MODE
    socket_group: str | None = None
    callers: Sequence[Caller] = field(default_factory=tuple)
    max_concurrent_runs: int | None = None
    max_runs_per_owner: int | None = None
    max_queued_runs: int = DEFAULT_QUEUED_RUNS
    max_connections: int = DEFAULT_CONNECTIONS
    allow_root: bool = False
    stop_runs_on_exit: bool = False


@dataclass(frozen=True, slots=True)
class Ready:
    """What is known once clients may come."""

    pid: int
    socket: str
    state_dir: str
    version: str

    def to_dict(self) -> dict[str, object]:
        """JSON form; the keys are the field names."""
        return asdict(self)


class Daemon:
    """One service, in a process that is its own: it takes the signals, and raises the limits."""

    def __init__(
        self,
        options: ServeOptions,
        notifier: Notifier,
        on_ready: Callable[[Ready], None],
        leave_now: Callable[[int], None],
    ) -> None:
        self._options = options
        self._notifier = notifier
        self._on_ready = on_ready
        self._leave_now = leave_now
        self._stop = asyncio.Event()

    async def run(self) -> bool:
        """Serve until a signal says otherwise.  False: with ``stop_runs_on_exit``, some run may still go on.

        Raises what `Supervisor.open` and `Server.start` do; ``INVALID_REQUEST`` as root without leave.
        """
        check_user(os.geteuid(), self._options.allow_root)
        self._take_signals()
        files = open_files.raise_limit()
        supervisor = await self._unless_stopped(self._own())
        if supervisor is None:
            return True
        try:
            server = self._server(supervisor)
            await server.start()
        except BaseException:
            await supervisor.close()
            raise
        try:
            ready = Ready(os.getpid(), server.path, supervisor.state_dir, __version__)
            logger().info(
                "ready", pid=ready.pid, socket=ready.socket, state_dir=ready.state_dir, open_files=files
            )
            self._on_ready(ready)
            self._notifier.ready(f"listening on {ready.socket}")
            await self._until_stopped(supervisor)
        finally:
            report = await self._end(supervisor, server)
        return not report.unconfirmed

    async def _own(self) -> Supervisor:
        options = self._options
        limits: dict[str, Any] = {
            "max_concurrent_runs": options.max_concurrent_runs,
            "max_runs_per_owner": options.max_runs_per_owner,
            "max_queued_runs": options.max_queued_runs,
        }
        try:
            return await Supervisor.open(options.state_dir, wait=0, zygote=True, **limits)
        except SupervisorError as error:
            if error.code is not ErrorCode.STATE_DIR_IN_USE:
                raise
            await refuse_if_served(options.state_dir, error)
            logger().info("waiting_for_owner", pid=error.details.get("pid"))
        return await Supervisor.open(options.state_dir, wait=OWNER_WAIT, zygote=True, **limits)

    def _server(self, supervisor: Supervisor) -> Server:
        options = self._options
        return Server(
            supervisor,
            socket=options.socket,
            mode=options.socket_mode,
            group=options.socket_group,
            callers=options.callers,
            max_connections=options.max_connections,
            kind="daemon",
        )

    async def _until_stopped(self, supervisor: Supervisor) -> None:
        """Until a signal, or until the journal no longer works: then a new process is the better one."""

        async def journal_answers() -> None:
            await supervisor.journal.write(lambda conn: None, durable=False)

        pulse = asyncio.create_task(keep_pulse(self._notifier, journal_answers), name="pulse")
        stopped = asyncio.create_task(self._stop.wait(), name="stop")
        try:
            await asyncio.wait({pulse, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if pulse.done():
                pulse.result()
        finally:
            pulse.cancel()
            stopped.cancel()

    async def _end(self, supervisor: Supervisor, server: Server) -> ShutdownReport:
        self._notifier.stopping("draining")
        await server.drain()
        await server.settle(SETTLE_SECONDS)
        report = ShutdownReport([], [])
        if self._options.stop_runs_on_exit:
            report = await supervisor.shutdown(timeout=STOP_SECONDS)
        await server.close()
        await supervisor.close()
        logger().info("stopped", stopped_runs=len(report.stopped), unconfirmed_runs=report.unconfirmed)
        return report

    async def _unless_stopped(self, work: Coroutine[Any, Any, T]) -> T | None:
        """What ``work`` comes to; None when a signal came first, and it has been given up."""
        task, stopped = asyncio.ensure_future(work), asyncio.ensure_future(self._stop.wait())
        try:
            await asyncio.wait({task, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                task.cancel()
                await asyncio.wait({task})
            return None if task.cancelled() else task.result()
        finally:
            stopped.cancel()

    def _take_signals(self) -> None:
        loop = asyncio.get_running_loop()
        ends = (signal.SIGTERM, signal.SIGINT)
        for signo in ends:
            loop.add_signal_handler(signo, self._signalled, signo)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ends)  # a mask is inherited from whoever started us
        # A closed terminal is no wish to end: the service goes on, like the runs.
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    def _signalled(self, signo: signal.Signals) -> None:
        if self._stop.is_set():
            logger().warning("leaving_at_once", signal=signo.name)
            self._leave_now(128 + signo)  # as good as a kill -9, which no run minds
            return
        logger().info("stopping", signal=signo.name)
        self._stop.set()


def check_user(uid: int, allow_root: bool) -> None:
    """Raises ``INVALID_REQUEST`` for root, whose programs could do anything, unless that is wanted."""
    if uid == 0 and not allow_root:
        raise invalid(
            "user",
            "is root: every program that a caller starts would be root's",
            "run serve as an ordinary user, or say --allow-root if that is what you want",
        )
