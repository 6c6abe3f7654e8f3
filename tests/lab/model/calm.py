"""After the violence: let everything settle, look at who survived, and see that all of them can leave."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from durable_supervisor.process.tree import descendants
from tests.lab.model.actions import answering, go_on
from tests.lab.model.driver import Driver
from tests.lab.model.herd import Child

PATIENCE = 60.0
# A host at rest: the interpreter's and the loop's own, the journal with its -wal and -shm for writing and for
# reading, the locks, the socket that it serves, one connection each for a few neighbours.
MOST_DESCRIPTORS = 40


def settle(driver: Driver) -> None:
    """Everything that was started is over, and known to be."""
    driver.herd.wake_all()
    for child in driver.herd.alive("daemon", "owner", "session"):
        if child.armed:
            driver.dismiss(child)
    _until(driver, lambda: not any(child.armed for child in driver.herd.alive()), "the armed leave")
    _until(driver, lambda: not _waits(driver, "start", "conflict"), "every start is answered")
    _keep(driver)
    _until(driver, lambda: _followed(driver), "every follower has come to the end")
    _until(driver, lambda: not driver.waiting_for, "every question is answered")


def look_at_survivors(driver: Driver) -> None:
    """Nobody who is left holds anything of runs that are over, nor a dead child."""
    for child in answering(driver):
        _until(driver, lambda child=child: not _burdens(driver, child), f"{child.role} holds nothing")  # type: ignore[misc]


def _burdens(driver: Driver, child: Child) -> object:
    driver.figures.clear()
    driver.ask(child, "figures")
    _until(driver, lambda: bool(driver.figures) or child.end is None, "a survivor tells what it holds")
    if not driver.figures:
        return None  # it had been asked to leave before
    held = driver.figures[0]["descriptors"]
    of_runs = [one for one in held if "/runs/" in one]
    watched = [one for one in held if "pidfd" in one][1:]  # one is of its zygote
    too_many = held if len(held) > MOST_DESCRIPTORS else []
    return driver.figures[0]["zombies"] or of_runs or watched or too_many


def leave(driver: Driver) -> None:
    """All go in good order, and nothing is left beneath us: no orphan, no daemon, no zombie.

    Once more for the sake of starts whose askers were killed: their owners may have carried them out late.
    """
    _dismiss_all(driver)
    _keep(driver)
    _dismiss_all(driver)
    _until(driver, lambda: not descendants(os.getpid()), "nothing of them is left")
    driver.herd.reap()
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    assert not children, children


def judge(driver: Driver, work: Callable[[], None]) -> None:
    """In a process of its own: the driver stays without threads, so that it may go on to fork."""
    child: Child = driver.herd.fork("oracle", lambda end: work())
    _until(driver, lambda: child.status is not None, "the judgement")


def _dismiss_all(driver: Driver) -> None:
    for child in driver.herd.alive():
        driver.dismiss(child)
    _until(driver, lambda: not driver.herd.alive(), "all of them leave")


def _keeper(driver: Driver) -> Child:
    """Whoever can settle things: an owner that serves nobody else, or a session."""
    for child in (*answering(driver, ("owner",)), *answering(driver, ("session",))):
        return child
    keeper = driver.hire("session")
    _until(driver, lambda: keeper.answered, "somebody owns the directory again")
    return keeper


def _keep(driver: Driver) -> None:
    """All runs are over; asked anew as long as nobody could see to it."""
    before = driver.settlings

    def settled() -> bool:
        if driver.settlings == before and not _waits(driver, "settle"):
            driver.ask(_keeper(driver), "settle")
        return driver.settlings > before

    _until(driver, settled, "all runs are settled")


def _waits(driver: Driver, *ops: str) -> bool:
    return any(asked in ops for asked, _ in driver.waiting_for)


def _followed(driver: Driver) -> bool:
    """Have all come to the end?  Those who lost their reader get another, who needs no service for it."""
    for follower in driver.followers:
        if follower.actor is None and not follower.done:
            go_on(driver, follower, _keeper(driver))
    return all(follower.done for follower in driver.followers)


def _until(driver: Driver, condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            for figures in driver.figures:
                what += f" {figures}"
            left = [(kind, one.pid, one.state, files_of(one.pid)) for kind, one in driver.herd.processes()]
            raise AssertionError(f"not so after {PATIENCE} s: {what}; {driver.waiting_for}; {left}")
        driver.let_pass(0.02)
        driver.herd.wake_all()


def files_of(pid: int) -> list[str]:
    """What it has open, for a report."""
    try:
        return [os.readlink(f"/proc/{pid}/fd/{name}") for name in os.listdir(f"/proc/{pid}/fd")]
    except OSError:
        return []
