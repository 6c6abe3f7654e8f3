"""Stopping what has a terminal: shells, which ignore TERM, and programs that clean up."""

from __future__ import annotations

import shutil
import signal

import pytest

from durable_supervisor import Terminal
from durable_supervisor.model.events import Kind
from durable_supervisor.model.run import Run
from durable_supervisor.wire.documents import validate
from tests.contract.runs import Marker, Runs, appear, gone
from tests.support import PATIENCE

PTY = Terminal(columns=100, rows=30, term="vt100")


async def signalled(runs: Runs, run: Run) -> list[tuple[object, object]]:
    """What the stop ladder has sent: step and signal."""
    events = await runs.events(run, kinds={Kind.PROGRAM_SIGNALLED})
    return [(event.detail["step"], event.detail["name"]) for event in events]


@pytest.mark.parametrize("shell", [["bash", "--norc", "-i"], ["sh", "-i"]], ids=lambda argv: str(argv[0]))
@pytest.mark.parametrize("job", ["", "sleep {}", "sleep {} & sleep {}", "sh -i"])
async def test_an_interactive_shell_is_stopped_as_by_a_closed_terminal(
    runs: Runs, marker: Marker, shell: list[str], job: str
) -> None:
    """It ignores TERM; so does the one that was started in it."""
    if shutil.which(shell[0]) is None:
        pytest.skip(f"no {shell[0]} here")
    run = await runs.start(shell, pty=PTY, grace=60)
    await runs.sup.write_stdin(run.id, f"echo rea''dy; {job.format(marker, marker)}\n".encode())
    await runs.printed(run, b"ready")
    appear(marker, job.count("{}"))
    if job == "sh -i":
        await runs.sup.write_stdin(run.id, b"echo in''side\n")
        await runs.printed(run, b"inside")
    assert (await runs.sup.stop(run.id, timeout=PATIENCE)).confirmed
    gone(marker)
    receipt = await runs.receipt(run)
    assert receipt["outcome"]["signal"] in (signal.SIGHUP, None)
    assert not receipt["stop"]["escalated"]
    assert await signalled(runs, run) == [("term", "SIGTERM"), ("hang_up", "SIGHUP")]
    for event in await runs.events(run):
        validate("event", event.to_dict())


CLEANER = """
import os, signal, sys, time
def clean(*_):
    time.sleep(0.5)
    print("cleaned up", flush=True)
    sys.exit(3)
signal.signal(signal.SIGTERM, clean)
print("ready", flush=True)
time.sleep(300)
"""


async def test_who_heeds_term_cleans_up_undisturbed(runs: Runs) -> None:
    """Closing its terminal would end it in the middle of that."""
    run = await runs.python(CLEANER, pty=PTY, grace=60)
    await runs.printed(run, b"ready")
    assert (await runs.sup.stop(run.id, timeout=PATIENCE)).confirmed
    assert b"cleaned up" in await runs.output(run)
    assert (await runs.receipt(run))["outcome"]["code"] == 3
    assert await signalled(runs, run) == [("term", "SIGTERM")]


async def test_what_means_to_outlive_its_terminal_has_the_whole_grace(runs: Runs, marker: Marker) -> None:
    # Many times the moment between TERM and HUP, which on a machine that stands still can be a long one.
    run = await runs.sh(f"trap '' TERM HUP; echo ready; sleep {marker}; :", pty=PTY, grace=2)
    await runs.printed(run, b"ready")
    appear(marker, 1)
    assert (await runs.sup.stop(run.id)).confirmed
    assert [step for step, _ in await signalled(runs, run)][:3] == ["term", "hang_up", "kill"]
