"""A worker for a start that is likely to be our own, before all that a start takes is loaded."""

from __future__ import annotations

import os
from itertools import pairwise

from durable_supervisor.model.errors import SupervisorError
from durable_supervisor.process.places import SOCKET_VARIABLE, may_be_served, state_directory

TYPE_CHECKING = False  # not from typing: to load that would make the worker wait
if TYPE_CHECKING:
    from durable_supervisor.supervisor.workers.prestarted import PrestartedWorker

    from ..options.shared import Settings

_NOT_OURS = {"--dry-run", "--help", "--socket"}


def is_alone(shared: Settings) -> bool:
    """Is no service in sight?  Raises STATE_DIR_REFUSED."""
    return shared.socket is None and not may_be_served(state_directory(shared.state_dir))


def prestarted_worker(shared: Settings) -> PrestartedWorker | None:
    """For a start that is likely to be our own: a worker that loads while we do, from now on.

    None where a service may be there, which has its own.  Raises STATE_DIR_REFUSED.
    """
    if shared.prestarted is not None or not is_alone(shared):
        return shared.prestarted
    return _spawn()


def speculative_worker(words: list[str]) -> PrestartedWorker | None:
    """The same before the words are understood: what understands them loads as long as half a worker does.

    A wrong guess does no harm.  Either a worker leaves without having had a run, as it also does where the
    words turn out to have a mistake, or there is none and one is spawned later.
    """
    options = words[1 : words.index("--")] if "--" in words else words[1:]
    if words[:1] != ["start"] or not _NOT_OURS.isdisjoint(word.partition("=")[0] for word in options):
        return None
    state_dir = _state_dir(options)
    if state_dir is None and os.environ.get(SOCKET_VARIABLE):
        return None
    try:
        return None if may_be_served(state_directory(state_dir)) else _spawn()
    except (OSError, SupervisorError):  # told once the words are understood
        return None


def _state_dir(options: list[str]) -> str | None:
    for word, following in pairwise([*options, ""]):
        name, equals, attached = word.partition("=")
        if name == "--state-dir":
            return attached if equals else following
    return None


def _spawn() -> PrestartedWorker | None:
    from durable_supervisor.supervisor.workers.prestarted import PrestartedWorker

    return PrestartedWorker.spawn()
