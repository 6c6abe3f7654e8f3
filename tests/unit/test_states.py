"""The transition table: total, and true to the guarantees it stands for."""

from __future__ import annotations

import pytest

from durable_supervisor.model.states import (
    JUDGED_STATES,
    OPEN_STATES,
    SETTLED_STATES,
    TRANSITIONS,
    Rule,
    RunState,
    Trigger,
    next_state,
)

ALL = [(state, trigger) for state in RunState for trigger in Trigger]


def reachable(start: RunState) -> set[RunState]:
    seen, todo = {start}, [start]
    while todo:
        state = todo.pop()
        for trigger in Trigger:
            target = next_state(state, trigger)
            if isinstance(target, RunState) and target not in seen:
                seen.add(target)
                todo.append(target)
    return seen


def test_every_cell_is_filled_and_no_other_exists() -> None:
    assert set(TRANSITIONS) == set(ALL)
    assert all(isinstance(cell, RunState | Rule) for cell in TRANSITIONS.values())


def test_states_are_sorted_into_open_settled_and_quarantined() -> None:
    assert OPEN_STATES | SETTLED_STATES | {RunState.QUARANTINED} == set(RunState)
    assert not OPEN_STATES & SETTLED_STATES
    assert set(RunState) - SETTLED_STATES == JUDGED_STATES


@pytest.mark.parametrize(("state", "trigger"), ALL)
def test_settled_facts_are_write_once(state: RunState, trigger: Trigger) -> None:
    if state not in SETTLED_STATES:
        return
    retries = {Trigger.RETRY: RunState.STARTING, Trigger.REQUEUE: RunState.QUEUED}
    allowed = retries.get(trigger) if state is RunState.NOT_STARTED else None
    assert next_state(state, trigger) is (allowed or Rule.REFUSED)


@pytest.mark.parametrize("trigger", list(Trigger))
def test_a_run_never_goes_back(trigger: Trigger) -> None:
    order = [RunState.QUEUED, RunState.STARTING, RunState.RUNNING, RunState.STOPPING]
    for place, state in enumerate(order):
        target = next_state(state, trigger)
        if target in order:
            assert order.index(RunState(target)) > place


@pytest.mark.parametrize(
    ("trigger", "target"),
    [
        (Trigger.FINISH, RunState.FINISHED),
        (Trigger.REFUSE, RunState.NOT_STARTED),
        (Trigger.LOSE, RunState.UNKNOWN),
        (Trigger.QUARANTINE, RunState.QUARANTINED),
    ],
)
def test_every_judged_run_takes_every_verdict(trigger: Trigger, target: RunState) -> None:
    for state in JUDGED_STATES:
        assert next_state(state, trigger) is target


def test_only_not_started_can_be_retried() -> None:
    takers = {state for state in RunState if next_state(state, Trigger.RETRY) is not Rule.REFUSED}
    assert takers == {RunState.NOT_STARTED}


def test_resolve_is_for_quarantined_runs() -> None:
    takers = {state for state in RunState if next_state(state, Trigger.RESOLVE) is not Rule.REFUSED}
    assert takers == {RunState.QUARANTINED}


def test_finished_and_unknown_are_ends_and_every_state_can_be_reached() -> None:
    assert reachable(RunState.FINISHED) == {RunState.FINISHED}
    assert reachable(RunState.UNKNOWN) == {RunState.UNKNOWN}
    assert reachable(RunState.QUEUED) == set(RunState)


def test_a_repeated_trigger_is_no_error_while_open() -> None:
    assert next_state(RunState.STARTING, Trigger.DISPATCH) is Rule.SAME
    assert next_state(RunState.RUNNING, Trigger.RELEASE) is Rule.SAME
    assert next_state(RunState.STOPPING, Trigger.STOP) is Rule.SAME
