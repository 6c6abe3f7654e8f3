"""Words of the product print as they are written in documents, and come back from a pickle as themselves."""

from __future__ import annotations

import json
import pickle
from enum import StrEnum

import pytest

from durable_supervisor import Access, Completion, ErrorCode, Lifetime, OnLimit, OutcomeKind, Phase, RunState

WORDS: list[type[StrEnum]] = [
    Access,
    Completion,
    ErrorCode,
    Lifetime,
    OnLimit,
    OutcomeKind,
    Phase,
    RunState,
]


@pytest.mark.parametrize("words", WORDS)
def test_they_print_as_they_are_written(words: type[StrEnum]) -> None:
    for one in words:
        assert f"{one}" == str(one) == f"{one:s}" == one.value
        assert json.loads(json.dumps(one)) == one
        assert pickle.loads(pickle.dumps(one)) is one


def test_the_reason_of_a_result() -> None:
    assert f"ended: {OutcomeKind.TIMED_OUT}" == "ended: timed_out"
