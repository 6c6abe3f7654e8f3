"""Bytes that rot: any file of a state directory, damaged anywhere, in any of the usual ways.

A seeded random choice; a failing seed is in the test's id and can be run again alone.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from durable_supervisor.process.identity import read_stat
from durable_supervisor.process.signals import signal_ticks
from tests.crash.harness import Host, Ledger, of_runs
from tests.lab.disk.verdict import Known, judge
from tests.lab.forms import FULL
from tests.support import eventually

BLOCK = 4096
SEEDS = range(400 if FULL else 8)
LOUD = "head -c 30000 /dev/urandom | base64"


def flip(data: bytearray, dice: random.Random) -> None:
    data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)


def zero_a_block(data: bytearray, dice: random.Random) -> None:
    at = dice.randrange(len(data)) // BLOCK * BLOCK
    data[at : at + BLOCK] = bytes(len(data[at : at + BLOCK]))


def zero_a_few(data: bytearray, dice: random.Random) -> None:
    at = dice.randrange(len(data))
    data[at : at + 16] = bytes(len(data[at : at + 16]))


def tear(data: bytearray, dice: random.Random) -> None:
    del data[dice.randrange(len(data)) :]


def tear_at_a_block(data: bytearray, dice: random.Random) -> None:
    del data[dice.randrange(len(data)) // BLOCK * BLOCK :]


def zeros_behind(data: bytearray, dice: random.Random) -> None:
    data += bytes(dice.randrange(1, 2 * BLOCK))


def garbage_behind(data: bytearray, dice: random.Random) -> None:
    data += dice.randbytes(dice.randrange(1, 2 * BLOCK))


def swap_blocks(data: bytearray, dice: random.Random) -> None:
    one, other = (dice.randrange(len(data)) // BLOCK * BLOCK for _ in range(2))
    first, second = data[one : one + BLOCK], data[other : other + BLOCK]
    data[one : one + len(second)], data[other : other + len(first)] = second, first


INSIDE: list[Callable[[bytearray, random.Random], None]] = [
    flip, zero_a_block, zero_a_few, tear, tear_at_a_block, zeros_behind, garbage_behind, swap_blocks,
]  # fmt: skip


def replace(path: Path, dice: random.Random) -> str:
    """Something else stands at its name."""
    kind = dice.choice(["deleted", "empty", "symlink", "directory", "fifo"])
    aside = path.with_name(f"{path.name}.aside")
    path.rename(aside)
    if kind == "empty":
        path.touch(mode=0o600)
    elif kind == "symlink":
        path.symlink_to(aside)
    elif kind == "directory":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path, 0o600)
    return kind


def damage(path: Path, dice: random.Random) -> str:
    if dice.random() < 0.25:
        return replace(path, dice)
    how = dice.choice(INSIDE)
    data = bytearray(path.read_bytes())
    if not data:
        return "nothing"
    how(data, dice)
    path.write_bytes(data)
    return how.__name__


class Rotting:
    """A directory as a kill -9 left it, its last commits in the -wal file: runs that are over, one lost."""

    def __init__(self, folder: Path) -> None:
        self.directory = folder / "state"
        self.directory.mkdir(mode=0o700)
        self.ledger = Ledger(folder)
        bodies = {"over": "echo out", "loud": LOUD, "lost": "sleep 60"}
        self.known = [Known(name, self.ledger.program(name, body)) for name, body in bodies.items()]
        with Host(self.directory) as host:
            host.opened()
            runs = {one.request_id: host.start(one.argv, one.request_id) for one in self.known}
            for name in ("over", "loud"):
                host.ask("wait", run=runs[name])
            eventually(lambda: self.ledger.begun("lost"))
            host.ask("reconcile")
            host.kill()
        for pid, ticks in of_runs(self.directory):
            signal_ticks(pid, ticks, signal.SIGKILL)
            eventually(lambda pid=pid: (stat := read_stat(pid)) is None or stat.dead)  # type: ignore[misc]

    def copy(self, folder: Path) -> Path:
        there = folder / "state"
        shutil.copytree(self.directory, there, ignore=shutil.ignore_patterns("*.sock", "supervisor.*"))
        there.chmod(0o700)
        return there

    def files(self, directory: Path) -> list[Path]:
        """What may rot; the journal's as often as all the logs together."""
        logs = sorted(path for path in (directory / "runs").rglob("*.log") if path.is_file())
        journal = [directory / name for name in ("journal.db", "journal.db-wal")]
        return [*logs, *journal * len(logs), directory / "key", directory / "journal.db-shm"]


@pytest.fixture(scope="module")
def rotting(tmp_path_factory: pytest.TempPathFactory) -> Rotting:
    return Rotting(tmp_path_factory.mktemp("rotting"))


@pytest.mark.parametrize("seed", SEEDS)
async def test_no_damage_is_told_as_a_fact(rotting: Rotting, tmp_path: Path, seed: int) -> None:
    directory = rotting.copy(tmp_path)
    assert (directory / "journal.db-wal").stat().st_size > 0
    dice = random.Random(seed)
    path = dice.choice(rotting.files(directory))
    how = damage(path, dice)
    told = await judge(directory, rotting.ledger, rotting.known)
    print(f"{how} in {path.name}: {', '.join(told)}")
