"""When a stream's next bytes may wait a little: decided by what came when, without a clock."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from durable_supervisor.worker.pace import PAUSE_SECONDS, Pace

MS = 0.001
OFTEN = 40  # reads


def answers(pace: Pace, reads: Iterable[tuple[int, float]], begin: float = 100.0) -> list[bool]:
    """For reads of so many bytes, each so long after the one before."""
    now, found = begin, []
    for got, since in reads:
        now += since
        found.append(pace.may_pause(got, now))
    return found


def test_who_writes_little_by_little_and_all_the_time_is_read_later() -> None:
    found = answers(Pace(), [(80, MS)] * OFTEN)
    assert not any(found[:7])
    assert all(found[8:])


def test_it_stays_so_while_reads_come_a_pause_apart() -> None:
    pace = Pace()
    answers(pace, [(80, MS)] * OFTEN)
    assert all(answers(pace, [(400, PAUSE_SECONDS)] * OFTEN, begin=100.0 + OFTEN * MS))


@pytest.mark.parametrize(
    ("got", "since"),
    [
        (80, 10 * PAUSE_SECONDS + MS),  # now and then
        (80, PAUSE_SECONDS),  # often, and yet a pause would save nothing
        (64 * 1024, MS),  # much at once
        (8 * 1024, 0.05 * MS),  # little at once, but the pipe would be full before the pause ends
    ],
)
def test_nobody_else_is(got: int, since: float) -> None:
    assert not any(answers(Pace(), [(got, since)] * OFTEN))


@pytest.mark.parametrize(("got", "since"), [(80, 1.0), (32 * 1024, MS)])
def test_after_a_silence_or_a_large_piece_it_is_judged_anew(got: int, since: float) -> None:
    pace = Pace()
    assert answers(pace, [(80, MS)] * OFTEN)[-1]
    assert not any(answers(pace, [(got, since), *[(80, MS)] * 6], begin=100.0 + OFTEN * MS))


def test_after_a_reset_it_is_judged_anew() -> None:
    pace = Pace()
    answers(pace, [(80, MS)] * OFTEN)
    pace.reset(100.0 + OFTEN * MS)
    found = answers(pace, [(80, MS)] * OFTEN, begin=100.0 + OFTEN * MS)
    assert not any(found[:7])
    assert all(found[8:])
