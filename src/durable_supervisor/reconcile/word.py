"""The owner's word in the log of a run whose worker left none."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial

from ..process import forks
from ..process.clock import Clock
from ..process.failpoints import failpoint
from ..process.locks import try_lock
from ..runlog.repair import LogUnusableError, open_for_append
from ..runlog.writer import LogFullError
from .act import Judged, Spoken
from .facts import JsonDict, Verdict, VerdictKind
from .observe import Place, read_log


def write_word(judged: Judged, place: Place, clock: Clock, kind: str) -> Spoken:
    """An event of this ``kind``, durable; under the log's lock, with the evidence found unchanged."""
    seen, verdict, row = judged.seen, judged.verdict, judged.row
    paths = place.paths(row)
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        # Guarded: a copy that the host forks now must not keep the lock.
        fd = forks.opened(lambda: os.open(paths.log(row.attempt), flags))
    except OSError:
        return Spoken.SILENT
    close: Callable[[], None] = partial(os.close, fd)
    try:
        if not try_lock(fd):
            return Spoken.CHANGED
        log = read_log(paths, row.attempt, place, final=True)
        if (log.head, log.generation) != (seen.head, seen.generation):
            return Spoken.CHANGED
        failpoint("reconcile.before_word")
        writer = open_for_append(
            paths,
            row.attempt,
            fd,
            boot_id=place.boot_id,
            clock=clock,
            directory_id=place.directory_id,
        )
        close = writer.close
        writer.finish(kind, _detail(verdict))
        failpoint("reconcile.word")
    except (LogFullError, LogUnusableError, OSError):
        return Spoken.SILENT
    finally:
        with forks.no_fork:
            forks.release(fd)
            close()
    return Spoken.SAID


def _detail(verdict: Verdict) -> JsonDict:
    if verdict.kind is VerdictKind.FINISHED and verdict.receipt is not None:
        return verdict.receipt
    return {"reason": verdict.reason, "retryable": verdict.retryable, "evidence": verdict.evidence}
