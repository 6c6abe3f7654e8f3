"""Identities, outcomes, ids and the JSON forms of facts."""

from __future__ import annotations

import re
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from durable_supervisor.model.identity import Match, ProcessIdentity, compare
from durable_supervisor.model.ids import RUN_ID_LENGTH, new_id, new_run_id
from durable_supervisor.model.outcome import Outcome, OutcomeKind, natural

BASE = {
    "pid": 42,
    "create_time": 1700000000.25,
    "start_ticks": 777,
    "boot_id": "boot-a",
    "pid_ns": "pid:[1]",
    "time_ns": "time:[1]",
}


def identity(**changes: object) -> ProcessIdentity:
    return ProcessIdentity.from_dict({**BASE, **changes})


# --- identity


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({}, Match.SAME),
        ({"create_time": 1.0}, Match.SAME),  # a stepped clock is no other process
        ({"start_ticks": 778}, Match.DIFFERENT),
        ({"pid": 43}, Match.DIFFERENT),
        ({"boot_id": "boot-b"}, Match.DIFFERENT),
        ({"boot_id": "boot-b", "pid_ns": "pid:[2]"}, Match.DIFFERENT),
        ({"pid_ns": "pid:[2]"}, Match.UNPROVABLE),
        ({"time_ns": "time:[2]"}, Match.UNPROVABLE),
        ({"pid_ns": "pid:[2]", "start_ticks": 1}, Match.UNPROVABLE),
    ],
)
def test_comparison(changes: dict[str, object], match: Match) -> None:
    assert compare(identity(), identity(**changes)) is match
    assert compare(identity(**changes), identity()) is match


def test_identity_round_trip() -> None:
    assert identity().to_dict() == BASE
    assert identity() == identity()
    assert hash(identity()) == hash(identity())
    assert identity() != identity(pid=43)
    assert identity() != "42"
    assert "42" in repr(identity())


@pytest.mark.parametrize("name", sorted(BASE))
@pytest.mark.parametrize("value", [None, [], {}])
def test_a_damaged_identity_is_a_value_error(name: str, value: object) -> None:
    with pytest.raises(ValueError, match="identity"):
        identity(**{name: value})
    with pytest.raises(ValueError, match="identity"):
        ProcessIdentity.from_dict({key: kept for key, kept in BASE.items() if key != name})


# --- outcome


@pytest.mark.parametrize("kind", list(OutcomeKind))
@pytest.mark.parametrize(("code", "signal"), [(0, None), (3, None), (None, 9)])
def test_outcome_round_trip(kind: OutcomeKind, code: int | None, signal: int | None) -> None:
    outcome = Outcome(kind, code, signal)
    assert outcome.to_dict() == {"kind": kind.value, "code": code, "signal": signal}
    assert Outcome.from_dict(outcome.to_dict()) == outcome
    assert hash(Outcome.from_dict(outcome.to_dict())) == hash(outcome)
    assert kind.value in repr(outcome)


@pytest.mark.parametrize(("code", "signal"), [(None, None), (0, 9)])
def test_an_outcome_has_either_a_code_or_a_signal(code: int | None, signal: int | None) -> None:
    with pytest.raises(ValueError, match="either"):
        Outcome(OutcomeKind.EXITED, code, signal)


@pytest.mark.parametrize(
    "form",
    [
        {},
        {"kind": "exited"},
        {"kind": "won", "code": 0, "signal": None},
        {"kind": "exited", "code": "0", "signal": None},
        {"kind": "exited", "code": 1, "signal": 9},
    ],
)
def test_a_damaged_outcome_is_a_value_error(form: dict[str, object]) -> None:
    with pytest.raises(ValueError):
        Outcome.from_dict(form)


def test_the_outcome_of_a_program_that_nobody_stopped() -> None:
    assert natural(3, None) == Outcome(OutcomeKind.EXITED, code=3)
    assert natural(None, 11) == Outcome(OutcomeKind.SIGNALED, signal=11)


# --- ids


@given(st.binary(min_size=RUN_ID_LENGTH, max_size=RUN_ID_LENGTH))
def test_run_ids_are_sixteen_easy_characters(raw: bytes) -> None:
    assert re.fullmatch(f"[0-9a-hjkmnp-tv-z]{{{RUN_ID_LENGTH}}}", new_run_id(lambda _: raw))
    assert new_id("ctl", lambda _: raw) == "ctl-" + new_run_id(lambda _: raw)


@pytest.mark.parametrize("place", range(RUN_ID_LENGTH))
def test_one_random_byte_makes_any_letter_as_likely_as_another(place: int) -> None:
    def made(value: int) -> str:
        return new_run_id(lambda size: bytes(place) + bytes([value]) + bytes(size - place - 1))

    assert set(Counter(made(value)[place] for value in range(256)).values()) == {256 // 32}
    assert len({made(value) for value in range(256)}) == 32
