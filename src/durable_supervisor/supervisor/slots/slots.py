"""Who holds a slot, who waits for one, and what a start is told when there is none.

A run holds a slot from its admission until nothing of it can be alive any more: while it
is starting, running or stopping, and as an unknown or quarantined one until a reboot has
ended its processes or an operator has resolved it.  The decisions are pure; the ledger
remembers what they rest on, so that no start has to count.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from ...journal.listing import SlotRow
from ...journal.rows import RunRow
from ...model.errors import ErrorCode, Phase, SupervisorError, invalid
from ...model.named_tuple import NamedTuple
from ...model.states import RunState

if TYPE_CHECKING:
    from ...model.answers import Capacity

DEFAULT_QUEUED_RUNS = 64  # each is a process that waits

_ALWAYS = frozenset({RunState.STARTING, RunState.RUNNING, RunState.STOPPING})
_WHILE_ALIVE = frozenset({RunState.UNKNOWN, RunState.QUARANTINED})

Key = tuple[str, str]  # owner and request id


class Bounds:
    """The most runs of each kind; None: as many as you like.  Raises ``INVALID_REQUEST``."""

    __slots__ = ("max_concurrent_runs", "max_queued_runs", "max_runs_per_owner")

    def __init__(
        self,
        max_concurrent_runs: int | None = None,
        max_runs_per_owner: int | None = None,
        max_queued_runs: int | None = DEFAULT_QUEUED_RUNS,
    ) -> None:
        self.max_concurrent_runs = _bound("max_concurrent_runs", max_concurrent_runs, 1)
        self.max_runs_per_owner = _bound("max_runs_per_owner", max_runs_per_owner, 1)
        self.max_queued_runs = _bound("max_queued_runs", max_queued_runs, 0)


def _bound(name: str, value: object, lowest: int) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < lowest:
        raise invalid(name, f"must be a whole number, {lowest} or more, or none")
    return value


class Load(NamedTuple):
    """What counts against the bounds when somebody asks for a start."""

    held: int
    held_by_owner: int
    queued: int


class Refusal(NamedTuple):
    """``scope`` is ``host``, ``owner`` or ``queue``."""

    scope: str
    limit: int
    held: int


class Waiter(NamedTuple):
    """A run in the queue.  ``told``: the journal has let it go already, its worker may not know."""

    run_id: str
    key: Key
    attempt: int
    serial: int
    priority: int
    told: bool = False

    @property
    def rank(self) -> tuple[bool, int, int]:
        """The smallest goes first: who was let go before, then by priority, then by age."""
        return (not self.told, -self.priority, self.serial)


def rule(bounds: Bounds, load: Load, *, queue: bool, serves_queue: bool = True) -> RunState | Refusal:
    """What becomes of a start: ``STARTING`` in a slot of its own, ``QUEUED``, or refused."""
    lacking = _lacking(bounds, load)
    if lacking is None:
        # Who only passes does not know the limits.  That others wait says that there was no slot.
        behind = queue and not serves_queue and load.queued > 0
        return RunState.QUEUED if behind else RunState.STARTING
    if not queue:
        return lacking
    most = bounds.max_queued_runs
    if most is not None and load.queued >= most:
        return Refusal("queue", most, load.queued)
    return RunState.QUEUED


def _lacking(bounds: Bounds, load: Load) -> Refusal | None:
    host, owner = bounds.max_concurrent_runs, bounds.max_runs_per_owner
    if host is not None and load.held >= host:
        return Refusal("host", host, load.held)
    if owner is not None and load.held_by_owner >= owner:
        return Refusal("owner", owner, load.held_by_owner)
    return None


def next_in_line(bounds: Bounds, held: Mapping[str, int], waiting: Iterable[Waiter]) -> list[Waiter]:
    """Who gets the slots that are free, in order; an owner at its limit is passed over.

    ``held``: slots by owner.
    """
    counts = Counter(held)
    total, chosen = sum(held.values()), []
    for waiter in sorted(waiting, key=lambda waiter: waiter.rank):
        owner = waiter.key[0]
        if _lacking(bounds, Load(total, counts[owner], 0)) is None:
            chosen.append(waiter)
            counts[owner] += 1
            total += 1
    return chosen


def holds_slot(row: RunRow | SlotRow, boot_id: str) -> bool:
    """Does a run in this state hold a slot?"""
    if row.state in _ALWAYS:
        return True
    if row.state not in _WHILE_ALIVE or row.resolution is not None or row.boot_id != boot_id:
        return False
    return (row.evidence or {}).get("may_be_alive") is True


def waiter_of(row: RunRow | SlotRow) -> Waiter:
    """A queued run's place in the line; ``starting`` and still there: it was let go before."""
    told = row.state is RunState.STARTING
    key = (row.owner, row.request_id)
    return Waiter(row.run_id, key, row.attempt, row.serial, row.priority, told)


class Slots:
    """The ledger of one supervisor: filled from the journal at open, kept by every change after it.

    Admissions ask it in the journal's thread, the loop tells it of ends: one lock, held
    for some microseconds.  An entry carries its attempt, so that late news of an
    earlier attempt does not free the slot of the next.

    Without ``serves_queue`` nobody is let go who was not let go before.
    """

    def __init__(self, bounds: Bounds, boot_id: str, serves_queue: bool = True) -> None:
        self.bounds = bounds
        self._serves_queue = serves_queue
        self._boot_id = boot_id
        self._lock = threading.Lock()
        self._held: dict[Key, int] = {}
        self._by_owner: dict[str, int] = {}
        self._queued: dict[Key, int] = {}  # from the admission on
        self._waiting: dict[Key, Waiter] = {}  # of those, whose worker waits

    @property
    def scarce(self) -> bool:
        """Is somebody counted out by a limit, or could be?  Then each end is to be known at once."""
        bounds = self.bounds
        return (
            bounds.max_concurrent_runs is not None
            or bounds.max_runs_per_owner is not None
            or bool(self._queued)
        )

    def capacity(self) -> Capacity:
        from ...model.answers import Capacity  # no start pays for it

        with self._lock:
            bounds = self.bounds
            return Capacity(
                bounds.max_concurrent_runs,
                bounds.max_runs_per_owner,
                bounds.max_queued_runs,
                len(self._held),
                len(self._queued),
            )

    def admit(self, key: Key, attempt: int, *, queue: bool) -> RunState:
        """Reserve a slot, or a place in the queue, for an intent that is about to be written.

        Raises ``CAPACITY_EXHAUSTED``; then nothing is reserved.
        """
        with self._lock:
            self._drop(key)  # of an earlier attempt, which is proven over
            if not self.scarce:  # nothing is to be counted, which would cost every start
                self._hold(key, attempt)
                return RunState.STARTING
            load = self._load(key[0])
            ruling = rule(self.bounds, load, queue=queue, serves_queue=self._serves_queue)
            if isinstance(ruling, Refusal):
                raise exhausted(ruling)
            if ruling is RunState.QUEUED:
                self._queued[key] = attempt
            else:
                self._hold(key, attempt)
            return ruling

    def give_back(self, key: Key, attempt: int) -> None:
        """Of an intent that was not written, or a run that has left the queue by itself."""
        with self._lock:
            if max(self._held.get(key, 0), self._queued.get(key, 0)) <= attempt:
                self._drop(key)

    def line_up(self, waiter: Waiter) -> None:
        """Its worker waits: from now on `pick` may choose it."""
        with self._lock:
            if self._queued.get(waiter.key) == waiter.attempt:
                self._waiting[waiter.key] = waiter

    def load(self, held: Iterable[SlotRow], queued: Iterable[SlotRow]) -> None:
        """All that the journal says when the supervisor opens; the workers of the queued wait."""
        with self._lock:
            for known in (self._held, self._by_owner, self._queued, self._waiting):
                known.clear()
            for row in held:
                self._hold((row.owner, row.request_id), row.attempt)
            for waiter in map(waiter_of, queued):
                self._queued[waiter.key] = waiter.attempt
                self._waiting[waiter.key] = waiter

    def note(self, row: RunRow) -> None:
        """The journal says something new about a run."""
        key = (row.owner, row.request_id)
        with self._lock:
            if row.attempt < max(self._held.get(key, 0), self._queued.get(key, 0)):
                return
            if row.state is RunState.QUEUED:
                return  # it lines up when its worker is there
            self._drop(key)
            if holds_slot(row, self._boot_id):
                self._hold(key, row.attempt)

    def pick(self) -> list[Waiter]:
        """Those whose turn it is; each holds a slot from now on."""
        with self._lock:
            chosen = self._due()
            for waiter in chosen:
                self._drop(waiter.key)
                self._hold(waiter.key, waiter.attempt)
            return chosen

    def put_back(self, waiter: Waiter, *, ready: bool = True) -> None:
        """It was not let go: back into the queue.  Not ``ready``: it is counted there, and never chosen."""
        with self._lock:
            if self._held.get(waiter.key) == waiter.attempt:
                self._drop(waiter.key)
                self._queued[waiter.key] = waiter.attempt
                if ready:
                    self._waiting[waiter.key] = waiter

    def _due(self) -> list[Waiter]:
        if not self._waiting:
            return []
        # Who has been let go and not told has its slot since then: telling it is no dispatch.
        waiting = [one for one in self._waiting.values() if self._serves_queue or one.told]
        return next_in_line(self.bounds, self._by_owner, waiting) if waiting else []

    def _load(self, owner: str) -> Load:
        """A slot that is free, and somebody's whose turn it is, is as good as taken."""
        due = self._due()
        return Load(
            len(self._held) + len(due),
            self._by_owner.get(owner, 0) + sum(waiter.key[0] == owner for waiter in due),
            len(self._queued) - len(due),
        )

    def _hold(self, key: Key, attempt: int) -> None:
        self._held[key] = attempt
        self._by_owner[key[0]] = self._by_owner.get(key[0], 0) + 1

    def _drop(self, key: Key) -> None:
        if self._held.pop(key, None) is not None:
            self._by_owner[key[0]] -= 1
            if not self._by_owner[key[0]]:
                del self._by_owner[key[0]]
        self._queued.pop(key, None)
        self._waiting.pop(key, None)


def exhausted(refusal: Refusal) -> SupervisorError:
    """``CAPACITY_EXHAUSTED``: nothing was written, and the request id is not spent."""
    what = {
        "host": "no slot is free",
        "owner": "this owner has no slot free",
        "queue": "the queue is full",
    }[refusal.scope]
    wait = "" if refusal.scope == "queue" else ", or let it wait (--queue, `queue`)"
    return SupervisorError(
        ErrorCode.CAPACITY_EXHAUSTED,
        f"{what}: {refusal.held} taken, {refusal.limit} allowed",
        phase=Phase.ADMIT,
        retryable=True,
        hint=f"send it again later{wait}",
        details={"scope": refusal.scope, "limit": refusal.limit, "held": refusal.held},
    )
