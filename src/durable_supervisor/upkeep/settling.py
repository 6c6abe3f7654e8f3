"""Settle in a copy what was not over when it was made.

The workers are the original's, and go on.  The copy has no lock that would tell of them, and never
hears of them again: to it the moment of the copy is what a restart of the machine is to a directory.
What is not in the log by then cannot be known; a request that was waiting may have been let go since.
The last word is written into the copied logs too, so that the copy says the same without its journal.
"""

from __future__ import annotations

from functools import partial

from ..journal import listing
from ..journal.connection import Journal
from ..journal.rows import RunRow
from ..model.states import RunState
from ..process.clock import Clock
from ..process.locks import LockState
from ..reconcile.act import Judged, fold, speak
from ..reconcile.decide import decide
from ..reconcile.facts import Observation, Reason, Verdict
from ..reconcile.observe import Place, look
from .errand import Errand

_BATCH = 200
# What the table says of runs under another boot.
_NOT_KNOWN = frozenset({Reason.REBOOTED.value, Reason.RELEASE_UNPROVEN.value})
_OF_BOOTS = frozenset({"same_boot", "intent_boot_id"})


async def settle(journal: Journal, place: Place, clock: Clock, errand: Errand) -> dict[str, str]:
    """Judge every run that is not settled, in logs and journal.

    Answers ``{run id: state}`` of those that were not over: to fold what a log says of its own run's
    end is only to catch up with it.
    """
    rows = await journal.read(listing.all_judged)
    settled: dict[str, str] = {}
    for first in range(0, len(rows), _BATCH):
        page = rows[first : first + _BATCH]
        judged = await errand.run(partial(_judge, page, place, clock))
        over = {item.row.run_id for item in judged if item.seen.last_word_counts}
        folded = await fold(journal, judged, clock)
        settled |= {row.run_id: row.state.value for row in folded if row.run_id not in over}
    return settled


def _judge(rows: list[RunRow], place: Place, clock: Clock) -> list[Judged]:
    judged = []
    for row in rows:
        seen = as_copied(look(row, place))
        judged.append(Judged(row, seen, verdict_on_copy(seen)))
        speak(judged[-1], place, clock)
    return judged


def as_copied(seen: Observation) -> Observation:
    """What a copied log shows of a run: nobody lives here, and nobody holds its lock."""
    return seen._replace(
        state=RunState.STARTING if seen.state is RunState.QUEUED else seen.state,
        same_boot=False,
        lock=LockState.FREE if seen.lock is LockState.HELD else seen.lock,
        worker=None,
        program=None,
    )


def verdict_on_copy(seen: Observation) -> Verdict:
    """The table's, with the reason why it is not known."""
    verdict = decide(seen)
    evidence = {name: fact for name, fact in verdict.evidence.items() if name not in _OF_BOOTS}
    reason = Reason.COPIED.value if verdict.reason in _NOT_KNOWN else verdict.reason
    return verdict._replace(reason=reason, evidence={**evidence, "copied": True})
