"""One timer for all who are waited for at once, and none where nobody is."""

from __future__ import annotations

import asyncio
from functools import partial

from durable_supervisor.supervisor.loop.patience import Patience
from tests.support import eventually_async


async def test_who_is_still_waited_for_is_called_back_in_turn() -> None:
    called: list[str] = []
    patience = Patience(0.01)
    late = {name: partial(called.append, name) for name in ("first", "answered", "second")}
    for one in late.values():
        patience.begin(one)
    patience.end(late["answered"])
    await eventually_async(lambda: called == ["first", "second"])
    patience.begin(late["answered"])
    await eventually_async(lambda: called == ["first", "second", "answered"])


async def test_nothing_is_left_in_the_loop_where_nobody_waits() -> None:
    patience = Patience(3600)
    late = partial(print, "late")
    patience.begin(late)
    assert _timers()
    patience.end(late)
    patience.end(late)
    assert not _timers()


async def test_who_is_called_back_may_begin_another_and_there_is_one_timer() -> None:
    patience = Patience(0.05)
    late, called = partial(print, "late"), asyncio.Event()

    def again() -> None:
        patience.begin(late)
        called.set()

    patience.begin(again)
    await asyncio.sleep(0)
    patience.begin(partial(print, "later"))
    await called.wait()
    assert len(_timers()) == 1
    patience.end(late)


def _timers() -> list[asyncio.TimerHandle]:
    scheduled: list[asyncio.TimerHandle] = vars(asyncio.get_running_loop())["_scheduled"]
    return [timer for timer in scheduled if not timer.cancelled() and "Patience" in repr(timer)]
