"""The way in for an application that shares a state directory with others."""

from __future__ import annotations

import os

from ..process.places import state_directory
from ..supervisor.loop.pending import Opening
from ..supervisor.slots.slots import DEFAULT_QUEUED_RUNS
from .election import OWNER_WAIT, Terms
from .session import Session


def open(  # noqa: A001  the verb that SQLite and dbm use for the same
    state_dir: str | os.PathLike[str] | None = None,
    *,
    serve: bool | None = None,
    wait: float = OWNER_WAIT,
    zygote: bool | None = None,
    max_concurrent_runs: int | None = None,
    max_runs_per_owner: int | None = None,
    max_queued_runs: int | None = DEFAULT_QUEUED_RUNS,
) -> Opening[Session]:
    """Own ``state_dir``, or share it with the process that does; take over when that goes.

    ``serve``: as an owner, let other processes of this user in over the directory's socket:
    True demands it, False never does, None does where aiohttp is installed.  ``wait``: seconds
    for an owner that does not answer, because it ends soon, begins, or serves nobody.  The
    rest, as for `Supervisor.open`, holds while this process is the owner.

    Raises what `Supervisor.open` does; ``STATE_DIR_IN_USE`` where the owner serves nobody.
    """
    terms = Terms(
        state_directory(state_dir),
        serve=serve,
        wait=wait,
        owning={
            "zygote": zygote,
            "max_concurrent_runs": max_concurrent_runs,
            "max_runs_per_owner": max_runs_per_owner,
            "max_queued_runs": max_queued_runs,
        },
    )
    return Opening(lambda: Session.elect(terms))
