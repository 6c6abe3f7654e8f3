"""The helpers that other tests lean on."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support import eventually, eventually_async, running


def test_eventually_returns_the_first_truthy_value() -> None:
    values = iter([0, None, "yes"])
    assert eventually(lambda: next(values)) == "yes"


def test_eventually_fails_at_its_deadline_and_says_why() -> None:
    def never() -> bool:
        raise AssertionError("still red")

    with pytest.raises(AssertionError, match="not so after") as caught:
        eventually(never, timeout=0.01)
    assert "still red" in str(caught.value.__cause__)


async def test_eventually_async_takes_both_kinds_of_predicate() -> None:
    values = iter([False, True, False, True])

    async def awaited() -> bool:
        return next(values)

    assert await eventually_async(lambda: next(values))
    assert await eventually_async(awaited)


def test_running_says_no_for_a_zombie() -> None:
    child = subprocess.Popen([sys.executable, "-c", "pass"])
    eventually(lambda: not running(child.pid))
    assert child.wait() == 0
    assert not running(child.pid)
