"""`run`: a program from its start to its end, in one call."""

from __future__ import annotations

from typing import Unpack

from ..model.command import STDIN_OPEN, Command
from ..model.errors import invalid
from ..model.result import RunResult
from .asked import CALL_LIMITS, Asked, Input, Options, ask
from .held import Held
from .verbs import Verbs
from .whose import verbs_of


async def run(command: Command, *, input: Input | None = None, **options: Unpack[Options]) -> RunResult:  # noqa: A002
    """Run ``command`` to its end, and answer with how it ended and what it printed.

    ``input``: its stdin, as bytes or something asynchronous that gives them out.  The others: `Options`.
    Every end is a result, also by a deadline, a bound, or the token.  When the task is cancelled, the
    tree is stopped and reaped first; cancelled again, without its grace.

    Raises SupervisorError ``INVALID_REQUEST``, ``ENFORCEMENT_REFUSED``, ``NOT_STARTED``, ``OUTCOME_UNKNOWN``
    (``details``: ``run_id``, ``evidence``), and what `Supervisor.start` raises.
    """
    asked = asked_of_run(command, input, options)
    return await finish(await verbs_of(options), asked)


def asked_of_run(command: Command, given: Input | None, options: Options) -> Asked:
    """Raises ``INVALID_REQUEST``."""
    asked = ask(command, options, given=given, otherwise=CALL_LIMITS)
    if command.stdin == STDIN_OPEN:
        raise invalid("stdin", "is open, and nobody could write to it", "give `input`, or use spawn()")
    return asked


async def finish(verbs: Verbs, asked: Asked) -> RunResult:
    """From its start to its result."""
    held = Held(verbs, asked, capture=True)
    try:
        await held.start()
        return await held.result()
    except BaseException as error:
        await held.abandon(error)
        raise
    finally:
        await held.release()
