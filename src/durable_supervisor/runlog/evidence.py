"""What a run log says to the reconciler."""

from __future__ import annotations

import os

from .facts import Facts
from .format import SegmentHeader
from .paths import RunPaths
from .tail import FOREIGN, Tail

Detail = dict[str, object]

UNACCEPTED = ("ok", "empty")  # how a log is that has no row and no record: nobody's, if its lock is free
_SHORT = 16 * 1024  # bytes of a log that are read at once, before anything of it is known


class LogEvidence:
    """An attempt's log, judged.

    ``status``: ``"ok"``, ``"missing"``, ``"not_regular"`` (symlink, FIFO …; never followed),
    ``"foreign"`` (another run's, attempt's or directory's), ``"unreadable"``, ``"empty"`` (no
    header was written, or nothing of it came to the disk).
    With ``"ok"``, ``header`` is None only when it is damaged and records were found
    without it.  ``damage`` holds ``{"segment", "offset", "length", "class"}`` with class
    ``"torn_tail"`` (an incomplete last record), ``"crash"`` (unsynced bytes of another
    boot) or ``"corrupt"``.  ``word_synced``: a mark says that ``terminal`` is on the disk.  The
    lifecycle fields are those of `facts.Facts`.
    """

    __slots__ = (
        "attempt", "confined", "crash_text", "damage", "exec_failed", "exited", "generation",
        "has_records", "head", "header", "last_verdict", "program", "receipt", "released", "status",
        "stopping", "terminal", "waiting", "withdrawn", "word_synced", "worker",
    )  # fmt: skip

    def __init__(
        self, status: str, attempt: int, header: SegmentHeader | None, *, has_records: bool, facts: Facts,
        head: int, generation: int, damage: list[Detail], word_synced: bool,
    ) -> None:  # fmt: skip
        self.status = status
        self.attempt = attempt
        self.header = header
        self.has_records = has_records
        self.head = head
        self.generation = generation
        self.damage = damage
        self.word_synced = word_synced
        self.worker = facts.worker
        self.program = facts.program
        self.waiting = facts.waiting
        self.withdrawn = facts.withdrawn
        self.released = facts.released
        self.confined = facts.confined
        self.stopping = facts.stopping
        self.exited = facts.exited
        self.exec_failed = facts.exec_failed
        self.receipt = facts.receipt
        self.terminal = facts.terminal
        self.crash_text = facts.crash_text
        self.last_verdict = facts.last_verdict

    def __repr__(self) -> str:
        return f"LogEvidence({self.status}, head={self.head})"


def read_evidence(
    paths: RunPaths, attempt: int, *, directory_id: str | None = None, boot_id: str | None = None,
    deep: bool = False,
) -> LogEvidence:  # fmt: skip
    """Read an attempt's log.  Never raises for what it finds on the disk.

    Raises OSError when we ourselves are short of something.

    ``boot_id`` is the running kernel's, to tell crash damage from corruption.
    Without ``deep`` damage is looked for in the last segment only.
    """
    tail = Tail(paths, attempt, directory_id)
    tail.refresh(deep=deep)
    return _evidence(tail, boot_id)


def read_short(
    fd: int, paths: RunPaths, attempt: int, *, directory_id: str | None = None
) -> LogEvidence | None:
    """As `read_evidence`, of the open first segment alone; None unless that is small and says it all.

    Most runs are short, and are looked at when they are over.  Raises OSError.
    """
    data = os.pread(fd, _SHORT + 1, 0)
    tail = Tail(paths, attempt, directory_id)
    return _evidence(tail, None) if len(data) <= _SHORT and tail.take_short(data) else None


def _evidence(tail: Tail, boot_id: str | None) -> LogEvidence:
    foreign = tail.status == FOREIGN
    return LogEvidence(
        tail.status,
        tail.attempt,
        tail.header,
        has_records=tail.has_records and not foreign,
        facts=Facts() if foreign else tail.facts,
        head=tail.head,
        generation=tail.generation,
        damage=[found.to_dict(boot_id) for found in tail.all_damage()],
        word_synced=tail.word_synced and not foreign,
    )
