"""What must hold of any state directory that something has happened to, whatever it was."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from durable_supervisor import ErrorCode, Supervisor, SupervisorError
from tests.crash.harness import Ledger
from tests.crash.world import World, no_guess, read_all

# Opening may be refused so, and `recover` then rebuilds what the logs know.
RECOVERABLE = frozenset(
    {
        ErrorCode.JOURNAL_MISSING,
        ErrorCode.JOURNAL_BEHIND,
        ErrorCode.JOURNAL_CORRUPT,
        ErrorCode.JOURNAL_MISMATCH,
    }
)
# Where a log's header or the key is not what it was, nothing can be said of the request.
NOTHING_SAID = frozenset({ErrorCode.IDEMPOTENCY_CONFLICT, ErrorCode.JOURNAL_BEHIND})


@dataclass(frozen=True)
class Known:
    """A request that was accepted before it happened, and what its program wrote down."""

    request_id: str
    argv: list[str]
    code: int = 5


async def judge(directory: Path, ledger: Ledger, known: Sequence[Known]) -> list[str]:
    """Open it (by way of `recover` where it says so), look at everything, send every request again.

    No id is executed again, and nothing is told that its program did not write down.  Returns how it went:
    the state of each request, a refusal's code before or in place of them.
    """
    try:
        return await _ask_all(directory, ledger, known)
    except SupervisorError as error:
        refusal = error
    told = [refusal.code.value]
    if refusal.code not in RECOVERABLE:
        return told
    try:
        await Supervisor.recover(directory)
    except SupervisorError as error:
        return [*told, error.code.value]
    return told + await _ask_all(directory, ledger, known)


async def _ask_all(directory: Path, ledger: Ledger, known: Sequence[Known]) -> list[str]:
    async with Supervisor.open(directory) as sup:
        return [await _ask(sup, World(directory, ledger, one.argv), one) for one in known]


async def _ask(sup: Supervisor, world: World, one: Known) -> str:
    world.request_id = one.request_id
    begun = world.ledger.begun(one.request_id)
    seen = await world.find(sup)
    if seen is not None:
        no_guess(world, seen, one.code)
        events = await read_all(sup, seen.id, 1000)
        assert [event.seq for event in events] == sorted({event.seq for event in events})
    try:
        again = await world.send(sup)
    except SupervisorError as error:
        if error.code in NOTHING_SAID:
            return error.code.name
        raise
    assert begun == world.ledger.begun(one.request_id), f"{one.request_id} was executed again"
    assert again.admission == "existing", f"{one.request_id} was forgotten"
    assert seen is None or again.id == seen.id
    return str(again.state.value)
