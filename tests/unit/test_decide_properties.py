"""The decision table under every observation that can be put together."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from durable_supervisor.model.events import Kind
from durable_supervisor.model.identity import ProcessIdentity
from durable_supervisor.model.states import SETTLED_STATES, RunState, Trigger, next_state
from durable_supervisor.process.identity import Liveness
from durable_supervisor.process.locks import LockState
from durable_supervisor.reconcile.decide import TABLE, decide
from durable_supervisor.reconcile.facts import TRIGGERS, LogStatus, Observation, Sighting, VerdictKind

IDENTITY = ProcessIdentity(4321, 99, "boot-1", "pid:[1]", "time:[1]", 1.0)
_numbers = st.none() | st.integers(-1, 300) | st.just("x")
_sightings = st.none() | st.builds(
    Sighting, st.just(IDENTITY), st.sampled_from(Liveness), st.none() | st.just(IDENTITY)
)
_outcomes = st.fixed_dictionaries(
    {
        "kind": st.sampled_from(["exited", "signaled", "timed_out", "new"]),
        "code": _numbers,
        "signal": _numbers,
    }
)
_receipts = st.fixed_dictionaries(
    {"outcome": _outcomes | st.none() | st.just("bad")},
    optional={"cleanup_confirmed": st.booleans() | st.none()},
)
_stops = st.fixed_dictionaries({"reason": st.sampled_from(["stop", "timeout", "leftover", 3, None])})
_words = st.tuples(
    st.sampled_from([Kind.RUN_NOT_STARTED, Kind.RUN_UNKNOWN, Kind.RUN_QUARANTINED]),
    st.fixed_dictionaries({}, optional={"reason": st.sampled_from(["ENOENT", None, 5])}),
)
observations = st.builds(
    Observation,
    state=st.sampled_from(RunState),
    same_boot=st.booleans(),
    lock=st.sampled_from(LockState),
    log=st.sampled_from(LogStatus) | st.just(LogStatus.OK),
    asked=st.just({}),
    intact=st.booleans(),
    corrupt=st.booleans(),
    worker=_sightings,
    waiting=st.booleans(),
    program=_sightings,
    released=st.booleans(),
    stop_requested=st.booleans(),
    stopping=st.none() | _stops,
    exited=st.none() | st.fixed_dictionaries({"code": _numbers, "signal": _numbers}),
    exec_failed=st.none() | st.fixed_dictionaries({"error": st.sampled_from(["ENOENT", "", 2])}),
    receipt=st.none() | _receipts,
    last_word=st.none() | _words,
    synced=st.booleans(),
)


@settings(max_examples=400)
@given(observations)
def test_total_and_the_first_match_wins(seen: Observation) -> None:
    verdict = decide(seen)
    assert verdict.row == next(row.number for row in TABLE if row.matches(seen))
    assert decide(seen) == verdict


@settings(max_examples=400)
@given(observations)
def test_a_settled_run_is_always_kept(seen: Observation) -> None:
    verdict = decide(seen)
    assert (verdict.kind is VerdictKind.KEPT) == (seen.state in SETTLED_STATES)
    if verdict.kind is VerdictKind.KEPT:
        assert verdict.state is seen.state


@settings(max_examples=400)
@given(observations)
def test_only_a_not_started_is_ever_retryable(seen: Observation) -> None:
    verdict = decide(seen)
    if verdict.retryable:
        assert verdict.kind is VerdictKind.NOT_STARTED
        assert not seen.stop_requested


@settings(max_examples=800)
@given(observations)
def test_not_started_only_with_proof(seen: Observation) -> None:
    if decide(seen).kind is not VerdictKind.NOT_STARTED:
        return
    logged = seen.last_word is not None and seen.last_word[0] == Kind.RUN_NOT_STARTED
    refused = seen.exec_failed is not None
    untold = seen.worker is None or seen.waiting
    undispatched = seen.state is RunState.QUEUED and not seen.released and untold
    unreleased = not seen.released and seen.intact and not seen.corrupt and seen.same_boot
    lock_free = seen.lock is LockState.FREE
    assert logged or (lock_free and seen.exited is None and (refused or undispatched or unreleased))


@settings(max_examples=400)
@given(observations)
def test_a_word_that_its_writer_is_still_at_is_no_word_yet(seen: Observation) -> None:
    if seen.lock is not LockState.HELD or seen.synced:
        return
    told, silent = decide(seen), decide(seen._replace(receipt=None, last_word=None))
    assert (told.kind, told.row, told.state, told.reason) == (
        silent.kind,
        silent.row,
        silent.state,
        silent.reason,
    )
    assert (told.outcome, told.receipt) == (None, None)
    assert seen.told_head == seen.head - (seen.receipt is not None or seen.last_word is not None)


@settings(max_examples=800)
@given(observations)
def test_an_end_only_from_evidence_of_it(seen: Observation) -> None:
    verdict = decide(seen)
    if verdict.outcome is not None:
        evidence = seen.receipt if seen.receipt is not None else seen.exited
        assert evidence is not None
        end = evidence["outcome"] if seen.receipt is not None else evidence
        assert isinstance(end, dict)
        assert (verdict.outcome.code, verdict.outcome.signal) == (end["code"], end["signal"])
    if verdict.kind is VerdictKind.FINISHED:
        assert verdict.outcome is not None


@settings(max_examples=400)
@given(observations)
def test_every_verdict_is_a_step_the_transition_table_allows(seen: Observation) -> None:
    verdict = decide(seen)
    trigger = TRIGGERS.get(verdict.kind)
    if trigger is not None:
        assert next_state(seen.state, trigger) is verdict.state
        assert verdict.evidence["row"] == verdict.row
    elif verdict.kind is VerdictKind.REATTACH:
        moves = {seen.state, *(next_state(seen.state, step) for step in list(Trigger)[:3])}
        assert verdict.state in moves
