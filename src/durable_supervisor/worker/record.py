"""The worker's hand on its run log: never loses a lifecycle record, never blocks on a sync."""

from __future__ import annotations

import _thread
import errno
import os
import time
from collections.abc import Callable, Sequence

from ..process.failpoints import failpoint
from ..runlog.sync import SyncJob
from ..runlog.writer import LogFullError, LogWriter
from .poller import READ, Poller

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .capture import Capture

SYNC_BYTES = 1024 * 1024
SYNC_SECONDS = 1.0
_RETRY_SECONDS = 0.5


class Recorder:
    """Appends, flushes once a turn, syncs in the background.

    A lifecycle record that does not fit on a full disk stays batched in the log, in
    order, and is tried again; output is the log's own affair (it drops and counts).
    ``on_head`` is called with the new head after every flush that moved it; ``told_head`` is that one, the
    last that readers find in the file.
    """

    def __init__(self, log: LogWriter, poller: Poller, on_head: Callable[[int], None]) -> None:
        self.log = log
        self.captures: Sequence[Capture] = ()  # of all the program's streams, once they are read
        self._poller = poller
        self._on_head = on_head
        self._unsynced = 0
        self._syncing: SyncJob | None = None
        self._sync_error: OSError | None = None
        self.told_head = log.head
        self.had_thread = False
        self._done_read = self._done_write = -1  # a pipe, once there is a sync: most runs have none

    def record(self, kind: str, detail: dict[str, object]) -> None:
        """Append one lifecycle event; it reaches the file at the next `flush`.

        What the program has written before is recorded first: it stands before an answer to a later control.
        """
        self.catch_up()
        self.log.append(kind, detail)

    def catch_up(self) -> bool:
        """Record what has come in the pauses of captures; true if there was any."""
        came = [capture.catch_up() for capture in self.captures]  # of all, not up to the first that had any
        return any(came)

    def output(self, stream: str, data: bytes) -> None:
        """Append output bytes.  On a full disk they are dropped and counted, never waited for."""
        self.log.append_output(stream, data)
        failpoint("worker.captured")
        self._unsynced += len(data)

    def flush(self) -> None:
        """Write what was appended, and wake whoever waits for it."""
        try:
            self.log.flush()
        except LogFullError:
            self._poller.at("retry", time.monotonic() + _RETRY_SECONDS, self.flush)
            return
        self._tell_head()
        self._sync_if_due()

    def finish(self, kind: str, detail: dict[str, object]) -> None:
        """Append the last record and return when it is durable.  Holds on for as long as it takes.

        The lock stays ours meanwhile, so nobody takes the run for lost.  Raises `LogFullError`
        when the log has been deleted together with its directory: nobody can ever read it.
        """
        while self._syncing is not None:
            self._poller.turn()
        while True:
            try:
                self.log.finish(kind, detail)
                break
            except LogFullError as error:
                # A directory that was moved, or is not mounted now, has kept its files: it may come back.
                if error.errno == errno.ENOENT and self.log.deleted:
                    raise
                time.sleep(_RETRY_SECONDS)
        self._tell_head()

    def close(self) -> None:
        """After the last record.  The log is closed by whoever opened it."""
        if self._done_read >= 0:
            os.close(self._done_read)
            os.close(self._done_write)

    def _tell_head(self) -> None:
        head = self.log.head
        if head > self.told_head:
            self.told_head = head
            self._on_head(head)

    def _sync_if_due(self) -> None:
        if not self._unsynced or self._syncing is not None:
            return
        if self._unsynced >= SYNC_BYTES:
            self._start_sync()
        elif not self._poller.armed("sync"):
            self._poller.at("sync", time.monotonic() + SYNC_SECONDS, self._start_sync)

    def _start_sync(self) -> None:
        if self._syncing is not None:
            return
        self._poller.cancel("sync")
        try:
            self._listen()
            self._syncing = self.log.begin_sync()
        except LogFullError:
            return  # what is on the disk will be synced with what follows
        except OSError:  # no descriptor now: a stop, say, must not be broken off for want of a sync
            self._poller.at("sync", time.monotonic() + SYNC_SECONDS, self._start_sync)
            return
        self._unsynced = 0
        failpoint("worker.syncing")
        self.had_thread = True
        try:
            # One short-lived thread: fdatasync releases the interpreter while the disk works.
            _thread.start_new_thread(self._sync_in_thread, (self._syncing,))
        except RuntimeError:  # no process or memory left for a thread, maybe by the program's own doing
            self._sync_in_thread(self._syncing)

    def _listen(self) -> None:
        """For the ends of syncs.  Raises OSError, with nothing changed."""
        if self._done_read >= 0:
            return
        read, write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            self._poller.watch(read, READ, lambda _: self._sync_done())
        except OSError:
            os.close(read)
            os.close(write)
            raise
        self._done_read, self._done_write = read, write

    def _sync_in_thread(self, job: SyncJob) -> None:
        try:
            job()
        except OSError as error:
            self._sync_error = error
        os.write(self._done_write, b"\0")

    def _sync_done(self) -> None:
        os.read(self._done_read, 64)
        job, self._syncing = self._syncing, None
        error, self._sync_error = self._sync_error, None
        if job is not None:
            self.log.end_sync(job, error)
            failpoint("worker.synced")
        self._sync_if_due()
