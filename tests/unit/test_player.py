"""Where a replay stands, key by key, without a clock."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from durable_supervisor.cli.watching.player import KEYS, Action, Playback, actions, told

MOVES = [action for action in Action if action is not Action.LEAVE]


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        (b"", []),
        (b" ", [Action.PAUSE]),
        (b"\x1b[C\x1b[C", [Action.FORWARD, Action.FORWARD]),
        (b"\x1bOD", [Action.BACK]),
        (b"+-=", [Action.FASTER, Action.SLOWER, Action.FASTER]),
        (b"x y", [Action.PAUSE]),
        (b"\x1b[5~ ", [Action.PAUSE]),
        (b"\x1bq", [Action.LEAVE]),
        ("é q".encode(), [Action.PAUSE, Action.LEAVE]),
    ],
)
def test_keys(typed: bytes, meant: list[Action]) -> None:
    assert actions(typed) == meant


def test_every_action_has_a_key() -> None:
    assert set(KEYS.values()) == set(Action)


@pytest.mark.parametrize(
    ("action", "expected"),
    [
        (Action.PAUSE, Playback(20.0, 10.0, 2.0, paused=True)),
        (Action.FORWARD, Playback(30.0, 10.0, 2.0)),
        (Action.BACK, Playback(10.0, 10.0, 2.0)),
        (Action.FASTER, Playback(20.0, 10.0, 4.0)),
        (Action.SLOWER, Playback(20.0, 10.0, 1.0)),
        (Action.LEAVE, Playback(20.0, 10.0, 2.0)),
    ],
)
def test_what_a_key_does(action: Action, expected: Playback) -> None:
    assert Playback(0.0, 0.0, 2.0).after(action, 10.0) == expected


def test_a_pause_holds_the_time() -> None:
    paused = Playback(0.0, 0.0).after(Action.PAUSE, 3.0)
    assert paused.at(100.0) == 3.0
    assert paused.until(4.0, 100.0) is None
    assert paused.until(2.0, 100.0) == 0.0
    assert paused.after(Action.PAUSE, 100.0).until(4.0, 100.0) == 1.0


def test_the_wait_is_in_the_watchers_time() -> None:
    assert Playback(0.0, 0.0, 4.0).until(10.0, 1.0) == 1.5


@given(st.lists(st.tuples(st.sampled_from(MOVES), st.floats(0, 100))))
def test_no_keys_lead_out_of_bounds(pressed: list[tuple[Action, float]]) -> None:
    state, now = Playback(0.0, 0.0), 0.0
    for action, passed in pressed:
        now += passed
        before = state.at(now)
        state = state.after(action, now)
        assert 0 < state.speed <= 1024
        assert state.at(now) >= 0
        assert action in (Action.FORWARD, Action.BACK) or state.at(now) == before
        assert told(state, action)
