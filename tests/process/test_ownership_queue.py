"""In line for a directory whose owners are gone in a moment."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from durable_supervisor.model.errors import ErrorCode, SupervisorError
from durable_supervisor.process.places import POINTER_NAME
from durable_supervisor.supervisor.state.ownership_queue import LONGEST_SECONDS, OwnerTimeout, take_in_turn
from durable_supervisor.supervisor.state.state_dir import Ownership, StateDir
from tests.cli.helpers import Cli
from tests.support import eventually

CROWD = 40
PATIENCE = 100.0  # seconds: the crowd has all processors busy


@pytest.fixture
def place(state_dir: Path) -> StateDir:
    return StateDir(str(state_dir))


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor() as pool:
        yield pool


def owned(place: StateDir) -> Ownership:
    ownership = Ownership.try_take(place)
    assert ownership is not None
    return ownership


def in_line(threads: ThreadPoolExecutor, place: StateDir, wait: float) -> Future[Ownership]:
    return threads.submit(lambda: asyncio.run(take_in_turn(place, wait, lambda: None)))


def test_a_crowd_of_commands_starts_all_that_it_asks_for_and_each_once(
    state_dir: Path, tmp_path: Path
) -> None:
    cli, ledger = Cli(state_dir), tmp_path / "ledger"
    commands = []
    for number in range(CROWD):
        verb = "start" if number % 5 else "run"  # which has an owner of another kind, and polls for the lock
        words = (verb, "--json", "--", "sh", "-c", f"echo {number} >> '{ledger}'")
        commands.append(cli.popen(*words, stdout=subprocess.PIPE))
    answers = [command.communicate(timeout=PATIENCE)[0] for command in commands]
    assert [command.returncode for command in commands] == [0] * CROWD
    assert len({json.loads(answer)["run_id"] for answer in answers}) == CROWD
    ran = eventually(lambda: lines if len(lines := ledger.read_text().split()) >= CROWD else None)
    assert sorted(int(number) for number in ran or ()) == list(range(CROWD))


def test_each_gets_it_when_the_one_before_lets_go(place: StateDir, threads: ThreadPoolExecutor) -> None:
    first = owned(place)
    waiting = [in_line(threads, place, PATIENCE) for _ in range(4)]
    first.release()
    while waiting:
        eventually(lambda: any(one.done() for one in waiting))
        done = next(one for one in waiting if one.done())
        waiting.remove(done)
        assert Ownership.try_take(place) is None, "it has an owner"
        done.result().release()
    owned(place).release()


def test_patience_is_for_each_owner_and_has_an_end(place: StateDir) -> None:
    now = [0.0]
    told: list[float] = []
    timeout = OwnerTimeout(place, 10, lambda: told.append(now[0]), lambda: now[0])
    while now[0] < LONGEST_SECONDS - 9:
        now[0] += 9
        Path(place.owner).write_text(str(now[0]))
        timeout.check()
    assert told == [9], "once"
    now[0] += 9
    with pytest.raises(SupervisorError, match="STATE_DIR_IN_USE"):
        timeout.check()


def test_whoever_is_more_patient_is_taken_at_their_word(place: StateDir) -> None:
    now = [0.0]
    timeout = OwnerTimeout(place, 2 * LONGEST_SECONDS, None, lambda: now[0])
    now[0] = 2 * LONGEST_SECONDS - 1
    assert not timeout.is_over()
    now[0] += 1
    assert timeout.is_over()


def test_one_that_stays_is_not_waited_for_for_ever(place: StateDir, threads: ThreadPoolExecutor) -> None:
    owner = owned(place)
    with pytest.raises(SupervisorError) as caught:
        in_line(threads, place, 0.2).result(PATIENCE)
    assert (caught.value.code, caught.value.details) == (ErrorCode.STATE_DIR_IN_USE, {"pid": os.getpid()})
    owner.release()
    again = eventually(lambda: Ownership.try_take(place), message="who left the line keeps nothing")
    assert again is not None
    again.release()


def test_a_service_that_comes_into_sight_is_to_be_asked(place: StateDir, threads: ThreadPoolExecutor) -> None:
    owner = owned(place)
    waiting = in_line(threads, place, PATIENCE)
    Path(place.path, POINTER_NAME).write_text("{}")
    with pytest.raises(SupervisorError) as caught:
        waiting.result(PATIENCE)
    assert caught.value.code is ErrorCode.STATE_DIR_IN_USE
    owner.release()


def test_a_lock_file_that_was_deleted_lets_nobody_in(place: StateDir, threads: ThreadPoolExecutor) -> None:
    owner = owned(place)
    os.unlink(place.lock)
    waiting = in_line(threads, place, PATIENCE)
    assert Ownership.try_take(place) is None
    owner.release()
    waiting.result(PATIENCE).release()
