"""The decision table, row by row: one observation each, and what must follow from it."""

from __future__ import annotations

from pathlib import Path

import pytest

from durable_supervisor.model.events import Kind
from durable_supervisor.model.identity import ProcessIdentity
from durable_supervisor.model.outcome import Outcome, OutcomeKind
from durable_supervisor.model.states import SETTLED_STATES, RunState
from durable_supervisor.process.identity import Liveness
from durable_supervisor.process.locks import LockState
from durable_supervisor.reconcile.decide import TABLE, decide
from durable_supervisor.reconcile.facts import JsonDict, LogStatus, Observation, Reason, Sighting, VerdictKind

IDENTITY = ProcessIdentity(4321, 99, "boot-1", "pid:[1]", "time:[1]", 1.0)
OTHER = ProcessIdentity(4321, 777, "boot-1", "pid:[1]", "time:[1]", 9.0)
ALIVE = Sighting(IDENTITY, Liveness.ALIVE)
GONE = Sighting(IDENTITY, Liveness.GONE)
REUSED = Sighting(IDENTITY, Liveness.GONE, OTHER)
UNPROVABLE = Sighting(IDENTITY, Liveness.UNPROVABLE)
RECEIPT: JsonDict = {
    "outcome": {"kind": "exited", "code": 7, "signal": None},
    "exit": {"code": 7, "signal": None},
    "cleanup_confirmed": True,
}
replace = Observation._replace
LOST = Observation(
    state=RunState.STARTING, same_boot=True, lock=LockState.FREE, log=LogStatus.OK, asked={}, worker=GONE
)
RELEASED = replace(LOST, state=RunState.RUNNING, released=True, program=GONE)
HELD = replace(RELEASED, lock=LockState.HELD, worker=ALIVE, program=ALIVE)
K = VerdictKind

# (name, what is seen, row, verdict, reason)
EXAMPLES = [
    ("settled", replace(RELEASED, state=RunState.FINISHED), 1, K.KEPT, "settled"),
    ("settled, late receipt", replace(LOST, state=RunState.UNKNOWN, receipt=RECEIPT), 1, K.KEPT, "settled"),
    ("receipt", replace(RELEASED, receipt=RECEIPT), 2, K.FINISHED, "logged"),
    ("receipt, marked as synced", replace(HELD, receipt=RECEIPT, synced=True), 2, K.FINISHED, "logged"),
    ("receipt, worker still at it", replace(HELD, receipt=RECEIPT), 3, K.REATTACH, "worker_alive"),
    ("receipt in a damaged log", replace(RELEASED, receipt=RECEIPT, corrupt=True), 2, K.FINISHED, "logged"),
    (
        "receipt without header",
        replace(RELEASED, receipt=RECEIPT, log=LogStatus.UNREADABLE),
        2,
        K.FINISHED,
        "logged",
    ),
    (
        "refused by the worker",
        replace(LOST, last_word=(Kind.RUN_NOT_STARTED, {"reason": "ENOENT"})),
        2,
        K.NOT_STARTED,
        "ENOENT",
    ),
    (
        "unknown before",
        replace(LOST, last_word=(Kind.RUN_UNKNOWN, {"reason": "rebooted"})),
        2,
        K.UNKNOWN,
        "rebooted",
    ),
    (
        "unreadable receipt",
        replace(RELEASED, receipt={"outcome": "?"}),
        2,
        K.QUARANTINED,
        "receipt_unreadable",
    ),
    (
        "tree not ended",
        replace(RELEASED, receipt={**RECEIPT, "cleanup_confirmed": False}),
        2,
        K.QUARANTINED,
        "cleanup_unconfirmed",
    ),
    (
        "tree ended by a reboot",
        replace(RELEASED, same_boot=False, receipt={**RECEIPT, "cleanup_confirmed": False}),
        2,
        K.FINISHED,
        "logged",
    ),
    ("working", HELD, 3, K.REATTACH, "worker_alive"),
    ("no worker logged yet", replace(LOST, lock=LockState.HELD, worker=None), 3, K.REATTACH, "worker_alive"),
    ("worker in another namespace", replace(HELD, worker=UNPROVABLE), 3, K.REATTACH, "worker_alive"),
    ("working, log damaged", replace(HELD, corrupt=True), 3, K.REATTACH, "worker_alive"),
    ("leaked lock", replace(HELD, worker=GONE), 4, K.QUARANTINED, "lock_leaked"),
    (
        "log missing",
        replace(LOST, log=LogStatus.MISSING, lock=LockState.MISSING),
        5,
        K.QUARANTINED,
        "log_missing",
    ),
    (
        "log missing, rebooted",
        replace(LOST, log=LogStatus.MISSING, lock=LockState.MISSING, same_boot=False),
        5,
        K.UNKNOWN,
        "log_missing",
    ),
    (
        "symlink",
        replace(LOST, log=LogStatus.NOT_REGULAR, lock=LockState.UNREADABLE),
        5,
        K.QUARANTINED,
        "log_not_regular",
    ),
    ("foreign, locked", replace(HELD, log=LogStatus.FOREIGN), 5, K.QUARANTINED, "log_foreign"),
    ("unreadable", replace(LOST, log=LogStatus.UNREADABLE), 5, K.QUARANTINED, "log_unreadable"),
    ("empty", replace(LOST, log=LogStatus.EMPTY), 5, K.QUARANTINED, "log_empty"),
    ("corrupt", replace(RELEASED, corrupt=True, intact=False), 5, K.QUARANTINED, "log_corrupt"),
    (
        "corrupt, exit logged",
        replace(RELEASED, corrupt=True, exited={"code": 0, "signal": None}),
        5,
        K.QUARANTINED,
        "log_corrupt",
    ),
    ("corrupt, rebooted", replace(RELEASED, corrupt=True, same_boot=False), 5, K.UNKNOWN, "log_corrupt"),
    ("lock cannot be asked", replace(LOST, lock=LockState.UNREADABLE), 5, K.QUARANTINED, "lock_unreadable"),
    ("unlinked between", replace(LOST, lock=LockState.MISSING), 5, K.QUARANTINED, "log_missing"),
    ("queued", replace(LOST, state=RunState.QUEUED, worker=None), 6, K.NOT_STARTED, "worker_lost"),
    (
        "queued, rebooted",
        replace(LOST, state=RunState.QUEUED, worker=None, same_boot=False),
        6,
        K.NOT_STARTED,
        "worker_lost",
    ),
    ("exit logged", replace(RELEASED, exited={"code": 3, "signal": None}), 7, K.FINISHED, "exit_logged"),
    (
        "exit logged, rebooted",
        replace(RELEASED, same_boot=False, exited={"code": 3, "signal": None}),
        7,
        K.FINISHED,
        "exit_logged",
    ),
    ("exit without a status", replace(RELEASED, exited={}), 7, K.QUARANTINED, "exit_unreadable"),
    (
        "exec refused",
        replace(RELEASED, exec_failed={"errno": 2, "error": "ENOENT"}),
        8,
        K.NOT_STARTED,
        "ENOENT",
    ),
    ("exec refused, no name", replace(RELEASED, exec_failed={}), 8, K.NOT_STARTED, "exec_failed"),
    ("never spawned", replace(LOST, worker=None), 9, K.NOT_STARTED, "worker_lost"),
    ("spawned, never released", replace(LOST, program=GONE), 9, K.NOT_STARTED, "worker_lost"),
    ("stopped before release", replace(LOST, state=RunState.STOPPING), 9, K.NOT_STARTED, "worker_lost"),
    ("not released, rebooted", replace(LOST, same_boot=False), 10, K.UNKNOWN, "release_unproven"),
    (
        "queued but dispatched, rebooted",
        replace(LOST, state=RunState.QUEUED, same_boot=False),
        10,
        K.UNKNOWN,
        "release_unproven",
    ),
    ("released, rebooted", replace(RELEASED, same_boot=False), 11, K.UNKNOWN, "rebooted"),
    ("orphan alive", replace(RELEASED, program=ALIVE), 12, K.QUARANTINED, "program_alive"),
    ("orphan gone", RELEASED, 13, K.UNKNOWN, "worker_lost"),
    ("pid reused", replace(RELEASED, program=REUSED), 13, K.UNKNOWN, "identity_mismatch"),
    (
        "orphan in another namespace",
        replace(RELEASED, program=UNPROVABLE),
        14,
        K.QUARANTINED,
        "program_unprovable",
    ),
    (
        "released, program not logged",
        replace(RELEASED, program=None),
        14,
        K.QUARANTINED,
        "program_not_logged",
    ),
    ("not released, torn log", replace(LOST, intact=False), 14, K.QUARANTINED, "release_unproven"),
    ("not released, program alive", replace(LOST, program=ALIVE), 14, K.QUARANTINED, "release_unproven"),
]


@pytest.mark.parametrize(
    ("seen", "row", "kind", "reason"), [e[1:] for e in EXAMPLES], ids=[e[0] for e in EXAMPLES]
)
def test_example(seen: Observation, row: int, kind: VerdictKind, reason: str) -> None:
    verdict = decide(seen)
    assert (verdict.row, verdict.kind, verdict.reason) == (row, kind, reason)


def test_every_row_has_an_example() -> None:
    assert [row.number for row in TABLE] == list(range(1, 15))
    assert {example[2] for example in EXAMPLES} == set(range(1, 15))


def test_a_receipt_is_taken_as_logged() -> None:
    verdict = decide(replace(RELEASED, receipt=RECEIPT))
    assert verdict.outcome == Outcome(OutcomeKind.EXITED, code=7)
    assert verdict.receipt is RECEIPT
    assert verdict.state is RunState.FINISHED


def test_an_unconfirmed_cleanup_keeps_the_exit() -> None:
    verdict = decide(replace(RELEASED, receipt={**RECEIPT, "cleanup_confirmed": False}))
    assert verdict.state is RunState.QUARANTINED
    assert verdict.outcome == Outcome(OutcomeKind.EXITED, code=7)


@pytest.mark.parametrize(
    ("stopping", "code", "signal", "kind"),
    [
        (None, 3, None, OutcomeKind.EXITED),
        (None, None, 9, OutcomeKind.SIGNALED),
        ({"reason": "leftover"}, 0, None, OutcomeKind.EXITED),
        ({"reason": "stop"}, 0, None, OutcomeKind.CANCELLED),
        ({"reason": "worker_terminated"}, None, 15, OutcomeKind.CANCELLED),
        ({"reason": "timeout"}, None, 15, OutcomeKind.TIMED_OUT),
        ({"reason": "idle_timeout"}, None, 15, OutcomeKind.IDLE_TIMED_OUT),
        ({"reason": "stdout_limit"}, 1, None, OutcomeKind.STDOUT_LIMIT_EXCEEDED),
        ({"reason": "stderr_limit"}, 1, None, OutcomeKind.STDERR_LIMIT_EXCEEDED),
    ],
)
def test_a_logged_exit_is_finished_but_incomplete(
    stopping: JsonDict | None, code: int | None, signal: int | None, kind: OutcomeKind
) -> None:
    verdict = decide(replace(RELEASED, exited={"code": code, "signal": signal}, stopping=stopping))
    assert verdict.outcome == Outcome(kind, code, signal)
    assert verdict.receipt is not None
    assert verdict.receipt["incomplete"] is True
    assert verdict.receipt["cleanup_confirmed"] is False


def test_a_logged_exit_that_became_the_last_word_says_the_same_again() -> None:
    first = decide(replace(RELEASED, exited={"code": 3, "signal": None}))
    again = decide(replace(RELEASED, exited={"code": 3, "signal": None}, receipt=first.receipt))
    assert (again.row, again.kind, again.outcome) == (2, VerdictKind.FINISHED, first.outcome)


def test_what_may_be_alive_is_told() -> None:
    def may(seen: Observation) -> object:
        return decide(seen).evidence["may_be_alive"]

    assert may(RELEASED) is True
    assert may(replace(RELEASED, same_boot=False)) is False
    assert may(LOST) is False
    assert may(replace(RELEASED, receipt=RECEIPT)) is False
    assert may(replace(RELEASED, exited={"code": 0, "signal": None})) is True


def test_reattach_says_the_furthest_state_of_journal_and_log() -> None:
    fresh = replace(LOST, lock=LockState.HELD, worker=None)
    assert decide(replace(fresh, state=RunState.QUEUED)).state is RunState.QUEUED
    assert decide(replace(fresh, state=RunState.QUEUED, worker=ALIVE)).state is RunState.STARTING
    waiting = replace(fresh, worker=ALIVE, waiting=True)
    assert decide(replace(waiting, state=RunState.QUEUED)).state is RunState.QUEUED
    assert decide(waiting).state is RunState.STARTING  # it was let go, and has not heard of it
    assert decide(fresh).state is RunState.STARTING
    assert decide(HELD).state is RunState.RUNNING
    assert decide(replace(HELD, stopping={"reason": "stop"})).state is RunState.STOPPING
    assert decide(replace(HELD, state=RunState.STOPPING)).state is RunState.STOPPING
    assert decide(replace(HELD, state=RunState.QUARANTINED)).state is RunState.QUARANTINED


@pytest.mark.parametrize("same_boot", [True, False])
def test_of_a_queued_run_the_journal_alone_proves_that_it_never_ran(same_boot: bool) -> None:
    """It says so until the worker may be told; from then on only this boot's log can prove it."""
    waited = replace(LOST, waiting=True, same_boot=same_boot)
    queued = decide(replace(waited, state=RunState.QUEUED))
    assert (queued.row, queued.kind, queued.retryable) == (6, K.NOT_STARTED, True)
    told = decide(waited)
    assert (told.row, told.kind) == ((9, K.NOT_STARTED) if same_boot else (10, K.UNKNOWN))
    taken_over = decide(replace(waited, state=RunState.QUEUED, waiting=False))
    assert (taken_over.row, taken_over.kind) == ((9, K.NOT_STARTED) if same_boot else (10, K.UNKNOWN))


def test_what_its_owner_stopped_is_not_retryable() -> None:
    assert decide(LOST).retryable
    assert not decide(replace(LOST, stop_requested=True)).retryable
    assert not decide(replace(LOST, stopping={"reason": "stop"})).retryable


def test_the_evidence_names_a_reused_pid() -> None:
    evidence = decide(replace(RELEASED, program=REUSED)).evidence
    assert evidence["program"] == {
        "pid": 4321,
        "start_ticks": 99,
        "liveness": "gone",
        "mismatch": {"pid": 4321, "start_ticks": 777},
    }


def test_damage_found_later_is_log_health_and_no_new_state() -> None:
    damage = ({"segment": 1, "offset": 9, "length": 3, "class": "corrupt"},)
    verdict = decide(replace(RELEASED, state=RunState.FINISHED, damage=damage, corrupt=True))
    assert (verdict.kind, verdict.state) == (VerdictKind.KEPT, RunState.FINISHED)
    assert verdict.log_health == {"status": "damaged", "damage": list(damage), "places": 1}
    torn = ({"segment": 1, "offset": 9, "length": 3, "class": "torn_tail"},)
    assert decide(replace(HELD, damage=torn)).log_health is None


def test_every_reason_and_row_is_documented() -> None:
    page = (Path(__file__).parents[2] / "docs" / "verdicts.md").read_text(encoding="utf-8")
    missing = [reason.value for reason in Reason if f"`{reason.value}`" not in page]
    assert missing == []
    assert all(f"| {row.number} |" in page for row in TABLE)
    assert all(f"`{state.value}`" in page for state in SETTLED_STATES)


def test_a_rebuilt_receipt_says_what_the_program_was_held_to() -> None:
    seen = replace(RELEASED, exited={"code": 0, "signal": None}, enforcement={"tree": {"applied": "full"}})
    receipt = decide(seen).receipt
    assert receipt is not None
    assert receipt["enforcement"] == {"tree": {"applied": "full"}}
    assert "enforcement" not in (decide(replace(seen, enforcement=None)).receipt or {})
