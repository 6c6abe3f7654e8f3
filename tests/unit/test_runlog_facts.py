"""What an attempt's log says in short, folded event by event."""

from __future__ import annotations

import pytest

from durable_supervisor.model.events import Kind
from durable_supervisor.runlog.facts import Detail, Facts

ME: Detail = {"pid": 1, "start_ticks": 2}
QUEUED = (Kind.RUN_QUEUED, {"identity": ME, "priority": 3})
DISPATCHED = (Kind.RUN_DISPATCHED, {"identity": ME})
STOP = (Kind.CONTROL_RECEIVED, {"id": "c", "op": "stop"})
GO = (Kind.CONTROL_RECEIVED, {"id": "d", "op": "dispatch"})


@pytest.mark.parametrize(
    ("events", "waiting", "withdrawn"),
    [
        ([], False, False),
        ([DISPATCHED], False, False),
        ([DISPATCHED, STOP], False, False),
        ([QUEUED], True, False),
        ([QUEUED, GO], True, False),
        ([QUEUED, GO, DISPATCHED, STOP], False, False),
        ([QUEUED, STOP], True, True),
        ([QUEUED, GO, STOP, DISPATCHED], False, True),  # asked for before it was a program's
    ],
)
def test_a_run_in_the_queue(events: list[tuple[str, Detail]], waiting: bool, withdrawn: bool) -> None:
    facts = Facts()
    for kind, detail in events:
        facts.note(kind, detail)
    for one in (facts, Facts.from_dict(facts.to_dict())):
        assert (one.waiting, one.withdrawn) == (waiting, withdrawn)
        assert one.worker == (ME if events else None)


def test_facts_of_an_older_log_know_no_queue() -> None:
    facts = Facts.from_dict({"worker": ME, "released": True})
    assert (facts.waiting, facts.withdrawn, facts.released) == (False, False, True)
