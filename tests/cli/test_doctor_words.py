"""How the doctor words what an axis lacks."""

from __future__ import annotations

import pytest

from durable_supervisor.cli.doctor.machine import _together


@pytest.mark.parametrize(
    ("reasons", "words"),
    [
        ([], ""),
        (["each by itself: no group"], "each by itself: no group"),
        (["each by itself: no group", "no share: no group"], "each by itself; no share: no group"),
        (["no group", "no share: no group"], "no share: no group"),
        (["a: b", "a: b"], "a: b"),
        (["a: b", "c"], "a: b; c"),
    ],
)
def test_what_two_reasons_come_down_to_is_said_once(reasons: list[str], words: str) -> None:
    assert _together(reasons) == words
