"""What the reconciler looks at, and what it can conclude.  Plain values, no I/O."""

from __future__ import annotations

from enum import StrEnum

from ..model.identity import ProcessIdentity
from ..model.named_tuple import NamedTuple
from ..model.outcome import Outcome
from ..model.states import RunState, Trigger
from ..process.identity import Liveness
from ..process.locks import LockState

JsonDict = dict[str, object]


class LogStatus(StrEnum):
    """Can the run's log be read as this run's log?"""

    OK = "ok"
    MISSING = "missing"
    NOT_REGULAR = "not_regular"  # a symlink, FIFO or directory stands in its place
    FOREIGN = "foreign"  # the header names another run or another state directory
    UNREADABLE = "unreadable"
    EMPTY = "empty"


class VerdictKind(StrEnum):
    KEPT = "kept"
    REATTACH = "reattach"
    FINISHED = "finished"
    NOT_STARTED = "not_started"
    UNKNOWN = "unknown"
    QUARANTINED = "quarantined"


class Reason(StrEnum):
    """Why a verdict is what it is.  Stable names; ``docs/verdicts.md`` explains each one."""

    SETTLED = "settled"
    LOGGED = "logged"
    WORKER_ALIVE = "worker_alive"
    CLEANUP_UNCONFIRMED = "cleanup_unconfirmed"
    RECEIPT_UNREADABLE = "receipt_unreadable"
    LOCK_LEAKED = "lock_leaked"
    LOCK_UNREADABLE = "lock_unreadable"
    LOG_MISSING = "log_missing"
    LOG_NOT_REGULAR = "log_not_regular"
    LOG_FOREIGN = "log_foreign"
    LOG_UNREADABLE = "log_unreadable"
    LOG_EMPTY = "log_empty"
    LOG_CORRUPT = "log_corrupt"
    LOG_UNSYNCED = "log_unsynced"
    WORKER_LOST = "worker_lost"
    NO_WORKER = "no_worker"
    EXIT_LOGGED = "exit_logged"
    EXIT_UNREADABLE = "exit_unreadable"
    EXEC_FAILED = "exec_failed"
    RELEASE_UNPROVEN = "release_unproven"
    REBOOTED = "rebooted"
    COPIED = "copied"
    PROGRAM_ALIVE = "program_alive"
    IDENTITY_MISMATCH = "identity_mismatch"
    PROGRAM_UNPROVABLE = "program_unprovable"
    PROGRAM_NOT_LOGGED = "program_not_logged"


class Sighting(NamedTuple):
    """A logged process.  ``liveness`` is None where nobody looked it up; ``now`` is the other process that
    has its pid, if any.
    """

    identity: ProcessIdentity
    liveness: Liveness | None = None
    now: ProcessIdentity | None = None

    def to_dict(self) -> JsonDict:
        """``pid``, ``start_ticks``, ``liveness`` if it was looked up and, for a reused pid, ``mismatch``."""
        form: JsonDict = {"pid": self.identity.pid, "start_ticks": self.identity.start_ticks}
        if self.liveness is not None:
            form["liveness"] = self.liveness.value
        if self.now is not None:
            form["mismatch"] = {"pid": self.now.pid, "start_ticks": self.now.start_ticks}
        return form


class Observation(NamedTuple):
    """Everything a verdict may rest on, gathered at one moment.

    ``worker`` and ``program`` are None where the log names none.  ``corrupt``: bytes
    of the log were damaged while this boot lasted.  ``intact``: no damage of any
    kind and no repair of any, so what the log does not say did not happen.
    ``released`` holds when the log or the journal has seen the release.  ``waiting``: the
    logged worker holds the run in the queue, and has not logged that it was let go.
    """

    state: RunState
    same_boot: bool
    lock: LockState
    log: LogStatus
    asked: JsonDict  # the log's header: what was asked for, no evidence
    intact: bool = True
    corrupt: bool = False
    worker: Sighting | None = None
    program: Sighting | None = None
    waiting: bool = False
    released: bool = False
    stop_requested: bool = False
    stopping: JsonDict | None = None
    exited: JsonDict | None = None
    exec_failed: JsonDict | None = None
    receipt: JsonDict | None = None
    last_word: tuple[str, JsonDict] | None = None  # a terminal event other than the receipt
    synced: bool = False  # a mark behind the receipt, or the last word, says that it is on the disk
    crash_text: str | None = None
    damage: tuple[JsonDict, ...] = ()
    intent_boot_id: str | None = None
    attempt: int = 1
    head: int = 0
    generation: int = 0
    enforcement: JsonDict | None = None  # what the program was held to; no evidence either

    @property
    def last_word_counts(self) -> bool:
        """Is there one, on the disk or left by a writer that is gone?  A live writer is yet to sync it."""
        spoken = self.receipt is not None or self.last_word is not None
        return spoken and (self.synced or self.lock is not LockState.HELD)

    @property
    def told_head(self) -> int:
        """The seq of the last event that may be told."""
        spoken = self.receipt is not None or self.last_word is not None
        return self.head - 1 if spoken and not self.last_word_counts else self.head


class Verdict(NamedTuple):
    """What follows from an observation.

    ``row`` is the line of the table in ``docs/verdicts.md``; ``state`` is the run state
    it leads to.  ``outcome`` and ``receipt`` are set where an end is known, also
    beside ``quarantined(cleanup_unconfirmed)``.  Only a not_started may be retryable.
    """

    kind: VerdictKind
    row: int
    state: RunState
    reason: str
    evidence: JsonDict
    outcome: Outcome | None = None
    receipt: JsonDict | None = None
    retryable: bool = False
    log_health: JsonDict | None = None


TRIGGERS = {
    VerdictKind.FINISHED: Trigger.FINISH,
    VerdictKind.NOT_STARTED: Trigger.REFUSE,
    VerdictKind.UNKNOWN: Trigger.LOSE,
    VerdictKind.QUARANTINED: Trigger.QUARANTINE,
}
