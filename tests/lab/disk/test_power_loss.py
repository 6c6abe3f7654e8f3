"""Power loss at any moment, with any subset of what was not synced: blocks of files and names in directories.

Real lives are recorded once; each seed chooses a moment, and what of the rest the disk has kept.
"""

from __future__ import annotations

import errno
import itertools
import os
import random
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from durable_supervisor import RunState, Supervisor, SupervisorError
from durable_supervisor.runlog.format import HeaderError, decode_header
from tests.crash.harness import ROOT, Ledger
from tests.crash.test_power import OTHER_BOOT
from tests.crash.world import World, no_guess, read_all
from tests.lab.disk import recorded
from tests.lab.disk.faults import Action, Call, Faults, Role
from tests.lab.disk.replay import Disk, Step, read_trace
from tests.lab.disk.verdict import RECOVERABLE
from tests.lab.forms import FULL

# Those behind the first few once found that an outcome was told before its receipt was on the disk.
SEEDS = range(1500) if FULL else (*range(16), 213, 505, 831, 1125, 1498)
# How much of the unsynced is kept: nothing is as likely as anything, and nearly all.
KEEP = (0.0, 0.5, 0.9)


@dataclass
class Recording:
    """``known[i]``: what is known of each request when the first ``i`` steps are done."""

    folder: Path
    steps: list[Step]
    ledger: Ledger
    known: list[dict[str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        """``admitted``: its caller has heard; ``released``: it may have begun; ``finished``: told so."""
        runs = {}
        for step in self.steps:
            if step.path.endswith("/marks") and step.data:
                _, name, run = step.data.decode().split()
                runs[run] = name
        told: dict[str, str] = {}
        self.known.append({})
        for step in self.steps:
            told = dict(told)
            if step.path.endswith("/marks") and step.data:
                word, name, _ = step.data.decode().split()
                if told.get(name) != "released" or word == "finished":
                    told[name] = word
            elif step.call is Call.WRITE and b"program.released" in step.data and ".a1." in step.path:
                told[runs[Path(step.path).name.partition(".")[0]]] = "released"
            self.known.append(told)


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    return recorded_life(tmp_path_factory.mktemp("recorded"), "one")


@pytest.fixture(scope="module", params=["one", "many"])
def any_recording(
    request: pytest.FixtureRequest, recording: Recording, tmp_path_factory: pytest.TempPathFactory
) -> Recording:
    """With one owner for all starts, and with one for each."""
    return recording if request.param == "one" else recorded_life(tmp_path_factory.mktemp("many"), "many")


def recorded_life(folder: Path, owners: str, refused: Call | None = None) -> Recording:
    """``refused``: what its owners may not do."""
    disk = folder / "disk"
    (disk / "state").mkdir(parents=True)
    (disk / "state").chmod(0o700)
    faults = Faults(folder, disk, traced=True)
    if refused is not None:
        faults.arm(Action.FAIL, Role.OWNER, calls=[refused], error=errno.EPERM, times=-1)
    env = {**os.environ, **faults.environment(Role.OWNER), "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"}
    subprocess.run(
        [sys.executable, str(recorded.__file__), str(folder), owners], env=env, cwd=ROOT, check=True
    )
    assert refused is None or faults.hits
    faults.close()
    assert faults.trace is not None
    return Recording(folder, read_trace(faults.trace), Ledger(folder))


def image_after(
    recording: Recording, steps: list[Step], target: Path, dice: random.Random, keep: float
) -> Path:
    disk = Disk(str(recording.folder / "disk" / "state"))
    for step in steps:
        disk.apply(step)
    disk.image(target, dice, keep)
    reboot(target)
    return target


def reboot(directory: Path) -> None:
    """Every recorded boot id that the disk has kept becomes another one."""
    if (directory / "journal.db").exists() and (directory / "journal.db").stat().st_size:
        try:
            with sqlite3.connect(directory / "journal.db") as conn:
                conn.execute("UPDATE runs SET boot_id = ? WHERE state != 'finished'", (OTHER_BOOT,))
        except sqlite3.Error:
            pass  # not one yet, or not one any more: the product has to say so
        finally:
            conn.close()
    for log in directory.glob("runs/*/*.log"):
        data = log.read_bytes()
        try:
            header, length = decode_header(data)
        except (HeaderError, ValueError):
            continue
        header.boot_id = OTHER_BOOT
        log.write_bytes(header.encode() + data[length:])


async def judge(directory: Path, recording: Recording, known: dict[str, str]) -> list[str]:
    """By way of `recover` where opening says so; the state of each request, after a refusal's code."""
    refused: list[str] = []
    try:
        return await _look(directory, recording, known)
    except SupervisorError as error:
        assert error.code in RECOVERABLE, error  # noqa: PT017
        refused = [error.code.value]
    await Supervisor.recover(directory)
    return refused + await _look(directory, recording, known)


async def _look(directory: Path, recording: Recording, known: dict[str, str]) -> list[str]:
    told = []
    async with Supervisor.open(directory) as sup:
        for name in recorded.SCRIPTS:
            world = World(directory, recording.ledger, request_id=name)
            seen = await world.find(sup)
            stage = known.get(name)
            told.append(f"{stage} {seen.state.value if seen else 'absent'}")
            if stage is not None:
                assert seen is not None, f"{name} was accepted and is forgotten"
            if seen is None:
                continue
            if stage == "finished":
                assert seen.state is RunState.FINISHED, f"{name}: the caller had its outcome"
            if stage in ("released", "finished"):
                assert seen.state is not RunState.NOT_STARTED, f"{name} would be executed again"
                no_guess(world, seen, recorded.CODE)
            else:
                assert seen.outcome is None
            events = await read_all(sup, seen.id, 1000)
            assert [event.seq for event in events] == sorted({event.seq for event in events})
    return told


@pytest.mark.parametrize("seed", SEEDS)
async def test_any_moment(recording: Recording, tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    # Most steps are of the making of the journal; most moments that matter come later.
    first = next(i for i, step in enumerate(recording.steps) if "/runs/" in step.path)
    count = dice.randrange(0 if seed % 8 == 0 else first, len(recording.steps) + 1)
    directory = image_after(recording, recording.steps[:count], tmp_path / "state", dice, dice.choice(KEEP))
    told = await judge(directory, recording, recording.known[count])
    print(f"after {count} of {len(recording.steps)}: {', '.join(told)}")


async def test_a_log_made_ahead_at_any_moment(recording: Recording, tmp_path: Path) -> None:
    """From its making, without a name, until the end of its run is told."""
    steps = recording.steps
    linked = [at for at, step in enumerate(steps) if step.call is Call.LINK]
    assert len(linked) >= len(recorded.LONE), "a run that comes alone takes one"
    made = max(at for at in range(linked[-1]) if steps[at].path == steps[linked[-1]].other)
    told = max(at for at, step in enumerate(steps) if step.data.startswith(b"finished next "))
    for at in range(made, told + 2):
        for seed in range(30 if FULL else 1):
            dice, folder = random.Random(1000 * at + seed), tmp_path / f"{at}-{seed}"
            directory = image_after(recording, steps[:at], folder, dice, KEEP[(at + seed) % 3])
            await judge(directory, recording, recording.known[at])
            assert strangers(directory) == set(), "a start that was never accepted leaves nothing"
            shutil.rmtree(directory)


def test_where_no_file_is_given_a_name_each_run_has_its_log_all_the_same(tmp_path: Path) -> None:
    """As under a system call filter; what the life itself holds, it holds."""
    steps = recorded_life(tmp_path, "one", refused=Call.LINK).steps
    assert not any(step.call is Call.LINK for step in steps)
    made = [step.path for step in steps if step.call is Call.CREATE and step.path.endswith(".a1.log")]
    assert len(made) == len(set(made)) == len(recorded.SCRIPTS)


def strangers(directory: Path) -> set[str]:
    """Runs with a log that the journal does not know."""
    with closing(sqlite3.connect(directory / "journal.db")) as conn:
        known = {run for (run,) in conn.execute("SELECT run_id FROM runs")}
    return {log.name.partition(".")[0] for log in directory.glob("runs/*/*.log")} - known


async def test_what_is_told_is_on_the_disk(recording: Recording, tmp_path: Path) -> None:
    """Right when a caller, or a follower, hears of an end, all that was not synced may be lost."""
    told = [i for i, step in enumerate(recording.steps) if step.data.startswith(b"finished ")]
    assert len(told) == 2 * len(recorded.SCRIPTS)
    for at in told:
        for seed in range(4):
            dice, folder = random.Random(seed), tmp_path / f"{at}-{seed}"
            directory = image_after(recording, recording.steps[: at + 1], folder, dice, 0.0)
            await judge(directory, recording, recording.known[at + 1])


async def test_what_is_accepted_is_on_the_disk(any_recording: Recording, tmp_path: Path) -> None:
    """Nor is a start lost that was accepted, or may have begun: the first ones of a new directory, with which
    all of the journal is synced, names of files and migrations included.
    """
    recording, known = any_recording, any_recording.known
    accepted = [at for at in range(1, len(known)) if known[at] != known[at - 1]]
    assert len(accepted) > len(recorded.SCRIPTS)
    for at in accepted:
        for seed in range(4):
            dice, folder = random.Random(seed), tmp_path / f"{at}-{seed}"
            directory = image_after(recording, recording.steps[:at], folder, dice, 0.0)
            await judge(directory, recording, known[at])


@pytest.mark.parametrize(("word", "files"), [(b"finished ", (".log",)), (b"admitted ", (".log", ".db-wal"))])
async def test_a_missing_sync_would_be_found(
    recording: Recording, tmp_path: Path, word: bytes, files: tuple[str, ...]
) -> None:
    """The worth of the above: without the syncs of logs an outcome that was told is lost, without the
    journal's, too, a start that was accepted.
    """
    told = [i for i, step in enumerate(recording.steps) if step.data.startswith(word)]
    for at, seed in itertools.product(told, range(8)):  # of some ends the journal has heard before the caller
        steps = recording.steps[: at + 1]
        lying = [one for one in steps if one.call is not Call.SYNC or not one.path.endswith(files)]
        folder = tmp_path / f"{at}-{seed}"
        directory = image_after(recording, lying, folder, random.Random(seed), 0.0)
        try:
            await judge(directory, recording, recording.known[at + 1])
        except (AssertionError, SupervisorError):  # or, of a log, too little is left to say whose it is
            return
    pytest.fail("nothing of it was ever lost")


async def test_the_whole_trace_is_the_directory(recording: Recording, tmp_path: Path) -> None:
    """The replay is true: with all steps and nothing lost, what there is now."""
    disk = Disk(str(recording.folder / "disk" / "state"))
    for step in recording.steps:
        disk.apply(step)
    disk.image(tmp_path / "state", random.Random(0), 1.0)
    real = recording.folder / "disk" / "state"
    compared = [path for path in real.rglob("*") if path.is_file() and path.suffix in (".log", ".db")]
    assert compared
    for path in compared:
        assert (tmp_path / "state" / path.relative_to(real)).read_bytes() == path.read_bytes(), path
