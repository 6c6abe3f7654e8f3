"""The one transaction in which a request becomes an intent: look up, count, make the log, write the row.

All of it runs in the journal's own thread, so that a start costs one hop and one
commit.  Nothing is dispatched before that commit is on the disk.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from ...journal import runs
from ...journal.errors import wrote_nothing
from ...journal.rows import Admission
from ...model.errors import ErrorCode, Phase, SupervisorError
from ...model.ids import new_run_id
from ...model.states import RunState
from ...process import forks
from ...process.clock import Clock, boot_id
from ...process.failpoints import failpoint
from ...process.shortage import is_shortage
from ...runlog.evidence import read_evidence
from ...runlog.paths import RunPaths, shard_of
from ..admission.admission import Place, Prepared
from ..admission.host import short_of
from ..admission.refusals import RECOVER_HINT
from ..opening.opening import Identity, judge_stranger, sweep
from ..slots.slots import Slots
from ..state.state_dir import StateDir, check_space, no_space, unusable
from .next_log import MakeLog, create_locked

if TYPE_CHECKING:
    import sqlite3


class AdmitWork:
    """One request's part of a journal transaction.

    Called again after a rollback, it goes on with the slot and the log that it has.  ``log`` is
    the locked descriptor, -1 while there is none; `let_go` or the dispatcher closes it.
    """

    def __init__(
        self,
        directory: StateDir,
        identity: Identity,
        clock: Clock,
        serials: Iterator[int],
        prepared: Prepared,
        slots: Slots,
        make_log: MakeLog = create_locked,
    ) -> None:
        self.log = -1
        self.place: Place | None = None
        self._paths: RunPaths | None = None
        self.queued = False
        self._slots = slots
        self._reserved = 0  # the attempt that a slot, or a place in the queue, is reserved for
        self._directory = directory
        self._identity = identity
        self._clock = clock
        self._serials = serials
        self._prepared = prepared
        self._make_log = make_log

    def __call__(self, conn: sqlite3.Connection) -> Admission:
        """``new`` and ``retry`` carry an intent and a log; of any other kind nothing was made.

        Raises what `planning.rule` refuses and ``CAPACITY_EXHAUSTED`` (both only for what is not known yet),
        ``NO_SPACE``, ``JOURNAL_BEHIND``, and OSError where the log cannot be made.
        """
        prepared = self._prepared
        known = None if prepared.generated_id else self._look_up(conn)
        if known is not None and known.kind != "retryable":
            return known
        if isinstance(prepared.ruling, SupervisorError):
            raise prepared.ruling
        if not self._reserved:
            self._reserve(1 if known is None else known.row.attempt + 1)
        if self.place is None:
            check_space(self._directory)
            self.place = self._choose(known)
            failpoint("start.chosen")
        if self.log < 0:
            self.log = self._create_log(self.place)
            failpoint("start.log_created")
        intent = prepared.intent(self.place, boot_id(), self._clock.wall_ns(), queued=self.queued)
        admission = runs.admit_known(conn, intent, known)
        failpoint("start.admitting")
        return admission

    def paths(self) -> RunPaths:
        """The files of the run that was chosen."""
        assert self.place is not None  # noqa: S101  only asked once there is a log
        if self._paths is None:
            self._paths = RunPaths(self._directory.runs, self.place.shard, self.place.run_id)
        return self._paths

    def let_go(self, error: BaseException | None) -> None:
        """The start ends before a worker has the log.

        A refusal of the journal proves that there is no intent, so the log was never
        anybody's.  After anything else (a cancelled loop) there may be one, which the log
        then proves never dispatched; without one the next opening sweeps the log away.
        """
        if self._reserved:
            self._slots.give_back(self._prepared.key, self._reserved)
            self._reserved = 0
        if self.log < 0 or self.place is None:
            return
        if error is None or wrote_nothing(error):
            with suppress(OSError):
                os.unlink(self.paths().log(self.place.attempt))
        forks.close(self.log)
        self.log = -1

    def _look_up(self, conn: sqlite3.Connection) -> Admission | None:
        request, prepared = self._prepared.request, self._prepared
        return runs.preview(conn, request.owner, request.request_id, prepared.digests, prepared.key_id)

    def _reserve(self, attempt: int) -> None:
        state = self._slots.admit(self._prepared.key, attempt, queue=self._prepared.queueing.queue)
        self.queued = state is RunState.QUEUED
        self._reserved = attempt

    def _choose(self, known: Admission | None) -> Place:
        """A new run, or the next attempt of one that provably never ran."""
        if known is None:
            serial = next(self._serials)
            return Place(new_run_id(os.urandom), serial, shard_of(serial), 1, 1)
        row = known.row
        paths = RunPaths(self._directory.runs, row.shard, row.run_id)
        try:
            evidence = read_evidence(paths, row.attempt)
        except OSError as error:  # unread, nobody knows which seq is next
            raise short_of(error, Phase.ADMIT) from error
        return Place(row.run_id, row.serial, row.shard, row.attempt + 1, evidence.head + 1)

    def _create_log(self, place: Place) -> int:
        header = self._prepared.header(place, self._identity.directory_id, boot_id(), self._clock.wall_ns())
        # A retry's may be there, of an attempt that no intent followed, in a shard too old to be looked at
        # when opening.  A new run's id is as new as its log.
        if place.attempt > 1 and os.path.lexists(self.paths().log(place.attempt)):
            try:
                if judge_stranger(self.paths(), place.attempt, self._identity):
                    sweep(self.paths(), place.attempt)
            except OSError as error:
                raise short_of(error, Phase.ADMIT) from error
        try:
            return self._make_log(self.paths(), header)
        except FileExistsError:
            raise SupervisorError(
                ErrorCode.JOURNAL_BEHIND,
                f"the journal does not know the log of run {place.run_id}, attempt {place.attempt}",
                phase=Phase.ADMIT,
                hint=RECOVER_HINT,
            ) from None
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise no_space(0) from error
            if is_shortage(error):
                raise short_of(error, Phase.ADMIT) from error
            raise unusable(self.paths().dir, error) from error
