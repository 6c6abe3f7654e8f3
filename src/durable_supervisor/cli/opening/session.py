"""Opening the product for one call of the command line."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from durable_supervisor.model.errors import ErrorCode, SupervisorError, invalid

from ..output import out
from ..output.escape import escape_text
from .prestart import is_alone

if TYPE_CHECKING:
    from durable_supervisor.api.owner import Owner
    from durable_supervisor.api.verbs import Reading
    from durable_supervisor.model.request import Queueing, StartRequest
    from durable_supervisor.model.run import Run
    from durable_supervisor.supervisor.workers.prestarted import PrestartedWorker

    from ..options.shared import Settings

T = TypeVar("T")

_PATIENCE: Final = 1.0  # seconds of silence before a person is told what is waited for
_NEWEST: Final = 1000


def drive(work: Coroutine[Any, Any, T]) -> T:
    """Run one verb to its exit code, or a part of it.  Ctrl-C cancels it (KeyboardInterrupt)."""
    import asyncio

    return asyncio.run(work)


@asynccontextmanager
async def observing(shared: Settings, run: str = "") -> AsyncIterator[Reading]:
    """For reading and controls, which need no owner: the files and workers themselves, or --socket.

    A ``run`` that names a bundle is read from there.
    """
    reading = await _reading(shared, run)
    try:
        yield reading
    except SupervisorError as error:
        await _explain(error, shared, reading)
        raise
    finally:
        await reading.close()


def needs_files(shared: Settings) -> None:
    """Raises INVALID_REQUEST with --socket: the verb reads what is stored, which no service hands out."""
    if shared.socket is not None:
        raise invalid("socket", "a service does not hand its files out", "use --state-dir, on its machine")


async def _reading(shared: Settings, run: str = "") -> Reading:
    from .unknown import check_bundle, is_bundle

    if is_bundle(run):
        check_bundle(run)
        from durable_supervisor.bundle.reader import BundleReader

        return BundleReader(run)
    if shared.socket is not None:
        from durable_supervisor.client.aio import AsyncClient

        return await AsyncClient.connect(socket=shared.socket)
    from durable_supervisor.supervisor.observer import Observer

    return Observer.open(shared.state_dir)


async def _explain(error: SupervisorError, shared: Settings, reading: Reading | None = None) -> None:
    """Through the files where they are in reach; else by what ``reading`` answers, if it is to be asked."""
    if error.code is not ErrorCode.UNKNOWN_RUN:
        return
    from durable_supervisor.process.places import state_directory

    from . import unknown
    from .complete import run_of_request

    if shared.socket is None:
        place = reading.state_dir if reading is not None else state_directory(shared.state_dir)
        unknown.explain(error, place, partial(run_of_request, shared.state_dir))
    elif reading is not None:
        newest = (await reading.list(limit=_NEWEST)).runs
        runs = {view.request_id: view.id for view in reversed(newest)}
        unknown.explain(error, reading.state_dir, runs.get)


def start_alone(
    shared: Settings,
    asked: StartRequest,
    queueing: Queueing,
    prestarted: PrestartedWorker | None,
    meanwhile: Callable[[], None],
) -> Run | None:
    """Without an event loop, which takes longer to load than to start a run takes in all.

    None where the directory has a service, or is to have more of its owner than a start:
    then it is for `owning`, and so is ``prestarted``.  ``meanwhile``: as for `passing.start`.
    """
    if not is_alone(shared):
        return None
    from durable_supervisor.supervisor.start import passing
    from durable_supervisor.supervisor.state.state_dir import locate

    try:
        run = passing.start(
            locate(shared.state_dir),
            asked,
            queueing,
            prestarted,
            whole=uninterrupted(),
            meanwhile=meanwhile,
            tell=partial(_tell_who_owns, shared),
        )
    except BaseException:
        if prestarted is not None:
            prestarted.close()
        raise
    if run is not None and prestarted is not None:
        prestarted.close()
    return run


@contextmanager
def uninterrupted() -> Iterator[None]:
    """What has begun is finished whole: Ctrl-C is KeyboardInterrupt behind it, only a second one at once."""
    import signal

    usual, pressed = signal.default_int_handler, False
    if signal.getsignal(signal.SIGINT) is not usual:  # whoever started us wants it ignored, say
        yield
        return

    def press(*_: object) -> None:
        nonlocal pressed
        pressed = True
        signal.signal(signal.SIGINT, usual)

    signal.signal(signal.SIGINT, press)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, usual)
        if pressed:
            raise KeyboardInterrupt


@asynccontextmanager
async def owning(shared: Settings, *, prestarted: PrestartedWorker | None = None) -> AsyncIterator[Owner]:
    """For starting and judging: the directory's service; where none answers, we own it meanwhile.

    Closing it leaves runs alone.  With --socket, that service or none.  ``prestarted``: as
    `prestarted_worker` made it; closed here.
    """
    import asyncio

    from durable_supervisor.api.election import Terms
    from durable_supervisor.api.owner import Owner
    from durable_supervisor.process.places import state_directory

    passing = {"serve_queue": False}  # the limits are a longer-lived owner's
    terms = Terms(
        state_directory(shared.state_dir),
        socket=shared.socket,
        serve=False,
        owning=passing,
        prestarted=prestarted,
    )
    owner = Owner(terms)
    waiting = asyncio.get_running_loop().call_later(_PATIENCE, _tell_who_owns, shared)
    try:
        await owner.seat()
        waiting.cancel()
        yield owner
    except SupervisorError as error:
        await _explain(error, shared)
        raise
    finally:
        waiting.cancel()
        await owner.close()
        if prestarted is not None:  # a service has started the run, or nobody has
            prestarted.close()


def _tell_who_owns(shared: Settings) -> None:
    """A person at a terminal learns what the silence is about."""
    from durable_supervisor.supervisor.state.state_dir import locate, owner_pid

    place = locate(shared.state_dir)
    pid = owner_pid(place)
    if pid not in (None, os.getpid()) and out.is_terminal(out.STDERR):
        out.note(escape_text(f"waiting for process {pid}, which owns {place.path}..."))
