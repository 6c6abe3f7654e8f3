"""Gather the evidence about one run.  Reads only: takes no lock, creates and writes nothing."""

from __future__ import annotations

import os
import time

from ..journal.rows import RunRow
from ..model.identity import ProcessIdentity
from ..model.named_tuple import NamedTuple
from ..model.states import SETTLED_STATES, RunState
from ..process.identity import Liveness, look_up
from ..process.locks import LockState, is_locked, probe_lock
from ..process.shortage import is_shortage
from ..runlog.evidence import LogEvidence, read_evidence, read_short
from ..runlog.files import READ_FLAGS
from ..runlog.paths import RunPaths
from .facts import JsonDict, LogStatus, Observation, Sighting

# A killed worker's paused child shares the lock until it has closed its descriptors, and
# leaves when the gate breaks; a supervisor holds the lock while it writes a verdict. All
# of them are short, but on a crowded machine: what still looks so after this many seconds is believed.
PATIENCE = 1.0
_PAUSE = 0.002
# A log that was written since it was last read has its access time noted otherwise (relatime), for which the
# file system's journal may have to be waited for.
_UNNOTICED = READ_FLAGS | getattr(os, "O_NOATIME", 0)
_NOBODY = ProcessIdentity(0, 0, "", "", "", 0.0)


class Place(NamedTuple):
    """Where the runs are, and which boot this is."""

    runs_dir: str
    directory_id: str  # "": not known, any log is taken as of this directory
    boot_id: str

    def paths(self, row: RunRow) -> RunPaths:
        return RunPaths(self.runs_dir, row.shard, row.run_id)


def observe(row: RunRow, place: Place, patience: float = PATIENCE) -> Observation:
    """One run's evidence; looks again for up to ``patience`` seconds while it may be in passing."""
    deadline = time.monotonic() + patience
    while True:
        seen = look(row, place)
        if not in_passing(seen) or time.monotonic() >= deadline:
            return seen
        time.sleep(_PAUSE)


def in_passing(seen: Observation) -> bool:
    """Could this be the short moment between a worker's death and its last traces' end?"""
    if seen.state is RunState.QUARANTINED or seen.last_word_counts:
        return False  # judged with patience before, or already plain
    worker_gone = seen.worker is not None and seen.worker.liveness is Liveness.GONE
    if seen.lock is LockState.HELD:
        return worker_gone
    paused_child = seen.program is not None and seen.program.liveness is Liveness.ALIVE
    return seen.lock is LockState.FREE and paused_child and not seen.released


def look(row: RunRow, place: Place) -> Observation:
    """One look, in the order that cannot misjudge a worker that ends meanwhile.

    Lock first, log second: once the lock is free nobody writes, so the log read
    after that is complete.  Was it held, the log may be older than the worker's
    end; then the worker is looked up last, and a dead one makes the caller look again.

    Raises OSError when we ourselves are short of something: that is evidence of nothing.
    """
    settled = row.state in SETTLED_STATES
    short = None if settled else look_at_short(row, place)
    if short is not None:
        return short
    paths = place.paths(row)
    lock = probe_lock(paths.log(row.attempt))
    log = read_log(paths, row.attempt, place, final=lock is LockState.FREE, every=settled)
    return _observation(row, place, lock, log)


def look_at_short(row: RunRow, place: Place) -> Observation | None:
    """By one descriptor, where one read of the log tells of its end; None leaves it to a longer look."""
    paths = place.paths(row)
    try:
        fd = os.open(paths.log(row.attempt), _UNNOTICED)
    except OSError:
        return None
    try:  # what is no regular file says nothing that could pass for a log, or cannot be read from a place
        lock = LockState.HELD if is_locked(fd) else LockState.FREE
        log = read_short(fd, paths, row.attempt, directory_id=place.directory_id or None)
    except OSError:
        return None
    finally:
        os.close(fd)
    return None if log is None else _observation(row, place, lock, log)


def read_log(paths: RunPaths, attempt: int, place: Place, *, final: bool, every: bool = False) -> LogEvidence:
    """The log as evidence.

    ``final``: its writer is gone.  Has it left no last word, then what the log does
    not say is evidence too, so every segment is searched for damage that may hide it.
    ``every``: search them in any case (a settled run is only looked at for its log's health).
    """
    ours, boot = place.directory_id or None, place.boot_id
    log = read_evidence(paths, attempt, directory_id=ours, boot_id=boot)
    silent = final and log.receipt is None and log.terminal is None
    if (every or silent) and os.path.lexists(paths.segments_dir(attempt)):
        return read_evidence(paths, attempt, directory_id=ours, boot_id=boot, deep=True)
    return log


def _observation(row: RunRow, place: Place, lock: LockState, log: LogEvidence) -> Observation:
    damage = tuple(log.damage)
    told = log.receipt is not None and log.receipt.get("cleanup_confirmed") is True
    settled = told and (log.word_synced or lock is LockState.FREE)
    # Under another boot, and nobody holds the lock: no process of this run can be left.
    ended = row.boot_id != place.boot_id and lock is not LockState.HELD
    return Observation(
        state=row.state,
        same_boot=row.boot_id == place.boot_id,
        lock=lock,
        log=LogStatus(log.status),
        intact=not damage and log.generation <= 1,
        corrupt=any(entry.get("class") == "corrupt" for entry in damage),
        worker=_sighting(log.worker, ended, settled),
        program=_sighting(log.program, ended, settled),
        waiting=log.waiting,
        released=log.released or _journal_saw_release(row),
        stop_requested=row.stop_requested or log.withdrawn,
        stopping=log.stopping,
        exited=log.exited,
        exec_failed=log.exec_failed,
        receipt=log.receipt,
        last_word=log.terminal if log.receipt is None else None,
        synced=log.word_synced,
        crash_text=log.crash_text,
        damage=damage,
        intent_boot_id=row.boot_id,
        attempt=row.attempt,
        head=log.head,
        generation=log.generation,
        asked={} if log.header is None else log.header.detail,
        enforcement=_enforcement(log),
    )


def _enforcement(log: LogEvidence) -> JsonDict | None:
    told = (log.confined or {}).get("enforcement")
    return told if isinstance(told, dict) else None


def _journal_saw_release(row: RunRow) -> bool:
    """The journal folded the release (only a released program is stopped), or a verdict told of it."""
    return row.state in (RunState.RUNNING, RunState.STOPPING) or bool((row.evidence or {}).get("released"))


def _sighting(recorded: JsonDict | None, ended: bool, settled: bool) -> Sighting | None:
    """Look a logged identity up.  One that cannot be read proves nothing either way.

    ``settled``: nothing rests on it, since the receipt tells of the end of all.
    """
    if recorded is None:
        return None
    try:
        identity = ProcessIdentity.from_dict(recorded)
    except ValueError:
        return Sighting(_NOBODY, Liveness.UNPROVABLE)
    if settled:
        return Sighting(identity)
    if ended:
        return Sighting(identity, Liveness.GONE)
    try:
        # After a reboot every pid is somebody else's: only a pid reused under this boot is news.
        return Sighting(identity, *look_up(identity))
    except OSError as error:
        if is_shortage(error):
            raise
        return Sighting(identity, Liveness.UNPROVABLE)
