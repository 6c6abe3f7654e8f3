"""Who answers for a state directory: its service, or else whoever gets its lock.

The lock is the proof of life.  Of any number who have lost the same owner exactly one gets it, judges
every run and then listens; the others find the lock held until that service answers them.
"""

from __future__ import annotations

import asyncio
import importlib
import itertools
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ..model.errors import ErrorCode, Phase, SupervisorError
from ..process.places import may_be_served
from .seat import OwnSeat, Seat, ServedSeat

if TYPE_CHECKING:
    from ..client.aio import AsyncClient
    from ..client.info import ServiceInfo
    from ..client.locate import Place
    from ..server.server import Server
    from ..supervisor.state.ownership_queue import OwnerTimeout
    from ..supervisor.supervisor import Supervisor
    from ..supervisor.workers.prestarted import PrestartedWorker

OWNER_WAIT: Final = 10.0  # as for `Supervisor.open`
DAEMON_PATIENCE: Final = 10.0  # a restart takes a second; one that crashed is started again after some
_ANSWER_SECONDS: Final = 5.0
_FIRST_PAUSE: Final = 0.01
_LONGEST_PAUSE: Final = 0.1  # seconds; a short-lived owner, such as a command line, takes no longer


def chance() -> float:
    """In [0, 1)."""
    import random  # takes as long to load as a seat that is free to be taken

    return random.random()  # noqa: S311  it spreads pauses, and hides nothing


class Terms(NamedTuple):
    """How to come by an answer.

    ``socket``: the service there, or none.  ``serve``: whether an owner serves the directory's
    socket; None: if it can.  ``wait``: seconds for an owner that does not answer (yet).
    ``daemon_patience``: seconds that a daemon has to come back before its place is taken.
    ``owning``: further arguments of `Supervisor.open`.  ``prestarted``: a worker that loads already, for
    an owner that starts a run at once; whoever made it closes it.
    """

    state_dir: str
    socket: str | None = None
    serve: bool | None = None
    wait: float = OWNER_WAIT
    daemon_patience: float = DAEMON_PATIENCE
    owning: Mapping[str, Any] = MappingProxyType({})
    prestarted: PrestartedWorker | None = None
    chance: Callable[[], float] = chance


async def take_seat(terms: Terms) -> Seat:
    """Connect to the directory's service, or own the directory.

    Raises what `Supervisor.open` does; ``STATE_DIR_IN_USE`` where an owner serves nobody for all of ``wait``.
    It goes on as long as owners change: a crowd of commands has one after the other.
    """
    if terms.socket is not None:
        return await _at(terms.socket)
    timeout: OwnerTimeout | None = None
    for attempt in itertools.count():
        served = await reach(terms.state_dir)
        if served is not None:
            return served
        try:
            return await _embed(terms)
        except SupervisorError as error:
            if error.code is not ErrorCode.STATE_DIR_IN_USE:
                raise
            timeout = timeout or _owner_timeout(terms)
            if timeout.is_over():
                error.hint = (
                    "its owner does not answer: it is stopped, or serves no socket (that takes the extra "
                    "`daemon`); end it, or choose another --state-dir"
                )
                raise
        await asyncio.sleep(pause(attempt, terms.chance()))
    raise AssertionError("count() has no end")


def _owner_timeout(terms: Terms) -> OwnerTimeout:
    from ..supervisor.state.ownership_queue import (
        OwnerTimeout,  # most directories have no owner, or a service
    )
    from ..supervisor.state.state_dir import StateDir

    return OwnerTimeout(StateDir(terms.state_dir), terms.wait, None, asyncio.get_running_loop().time)


async def take_next_seat(lost: Seat | None, terms: Terms) -> Seat:
    """As `take_seat`, after ``lost`` has gone: where that was a daemon, it has its place back if it returns.

    Its time begins when nobody owns the directory: a daemon may drain for long before it goes.
    """
    if terms.socket is not None or not isinstance(lost, ServedSeat) or not lost.daemon:
        return await take_seat(terms)
    from ..supervisor.state.state_dir import StateDir, owner_pid

    place, loop = StateDir(terms.state_dir), asyncio.get_running_loop()
    began = free_since = loop.time()
    for attempt in itertools.count():
        served = await reach(terms.state_dir)
        if served is not None:
            return served
        now = loop.time()
        if owner_pid(place) is not None:
            free_since = now
            if now - began >= terms.wait:  # it is stopped, perhaps
                return await take_seat(terms._replace(wait=0))
        if now - free_since >= terms.daemon_patience:
            return await take_seat(terms)
        await asyncio.sleep(pause(attempt, terms.chance()))
    raise AssertionError("count() has no end")


async def _at(socket: str) -> ServedSeat:
    """The service at a socket that was named: it, or none."""
    client, place = _client(None, socket)
    try:
        info = await client.info()
    except BaseException:
        await client.close()
        raise
    return _served(client, place, info)


async def reach(state_dir: str) -> ServedSeat | None:
    """The directory's service; None where none answers, or it takes nothing more.

    Raises ``PEER_DENIED``, ``UNSUPPORTED_API_VERSION``.
    """
    if not may_be_served(state_dir):
        return None  # the usual case for a command line, which need not import a client for it
    client, place = _client(state_dir, None)
    try:
        async with asyncio.timeout(_ANSWER_SECONDS):
            info = await client.info()
        if info.phase == "accepting":
            return _served(client, place, info)
    except TimeoutError:
        pass  # a stopped process, perhaps: the lock tells whether it lives
    except SupervisorError as error:
        if error.code is not ErrorCode.SERVICE_UNAVAILABLE:
            await client.close()
            raise
    await client.close()
    return None


def _served(client: AsyncClient, place: Place, info: ServiceInfo) -> ServedSeat:
    return ServedSeat(client, place, daemon=info.kind == "daemon")


def _client(state_dir: str | None, socket: str | None) -> tuple[AsyncClient, Place]:
    """Not connected yet; it leaves looking for the next owner to us."""
    try:
        from ..client.aio import AsyncClient
        from ..client.locate import Place
    except ModuleNotFoundError as error:
        raise _extra_missing("asking the directory's service", error, "client", Phase.CONNECT) from error
    place = Place.of(state_dir, socket)
    return AsyncClient(place, reconnect=0), place


async def _embed(terms: Terms) -> OwnSeat:
    """Raises ``STATE_DIR_IN_USE`` at once where somebody else has the lock."""
    await _load("durable_supervisor.supervisor.supervisor")
    from ..supervisor.supervisor import Supervisor

    supervisor = await Supervisor.open(terms.state_dir, wait=0, prestarted=terms.prestarted, **terms.owning)
    try:
        return OwnSeat(supervisor, await _serve(supervisor, required=terms.serve))
    except BaseException:
        await supervisor.close()
        raise


async def _serve(supervisor: Supervisor, *, required: bool | None) -> Server | None:
    """The directory's socket, served beside the application.

    None where that is not wanted, or not possible: then others wait for the directory, and this
    application works all the same.  Raises ``EXTRA_MISSING``, ``SOCKET_IN_USE`` where it is ``required``.
    """
    if required is False or (required is None and not _can_serve()):
        return None
    try:
        return await _server(supervisor)
    except SupervisorError as error:
        if required:
            raise
        from ..supervisor.loop.logs import logger

        logger().warning("not_serving", error=error.code.value, message=error.message)
        return None


def _can_serve() -> bool:
    from importlib.util import find_spec

    return find_spec("aiohttp") is not None


async def _server(supervisor: Supervisor) -> Server:
    try:
        await _load("durable_supervisor.server.server")
        from ..server.server import Server
    except ImportError as error:  # not installed, or a version too old for us
        raise _extra_missing("serving the directory's socket", error, "daemon", Phase.OPEN) from error
    server = Server(supervisor)
    await server.start()
    return server


def _extra_missing(what: str, error: ImportError, extra: str, phase: Phase) -> SupervisorError:
    from ..model.extras import extra_missing, library_of

    return extra_missing(what, library_of(error), extra, phase)


async def _load(module: str) -> None:
    """Import it without holding up the host's loop, for it may take a tenth of a second and more.

    In a thread of our own: the host's executor may be busy with something else for long.
    """
    if module in sys.modules:
        return
    threads = ThreadPoolExecutor(max_workers=1, thread_name_prefix="durable-supervisor-import")
    try:
        await asyncio.get_running_loop().run_in_executor(threads, importlib.import_module, module)
    finally:
        threads.shutdown(wait=False)


def pause(attempt: int, chance: float) -> float:
    """Seconds before looking again after the ``attempt``-th look (from 0); ``chance`` is in [0, 1).

    Spread out, so that those who lost the same owner do not look in step.
    """
    longest = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2 ** min(attempt, 10))
    return float(longest * (0.5 + chance / 2))


def is_loss(error: SupervisorError) -> bool:
    """Has whoever answered gone, so that the same call may be put to its successor?

    Not where it may have been carried out, but for a start, whose request id makes that safe.
    """
    if error.code is ErrorCode.SUBMISSION_INDETERMINATE:
        return error.retryable
    return error.code in (ErrorCode.SERVICE_UNAVAILABLE, ErrorCode.SHUTTING_DOWN)
