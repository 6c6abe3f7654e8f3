"""A viewer of one run over the service's socket, for threads."""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import closing
from typing import TYPE_CHECKING, Self

from ..model.answers import ControlReceipt, StopReceipt
from ..model.arguments import BytesLike, stdin_bytes, terminal_size
from ..model.command import check_timeout
from ..model.events import Event
from ..model.view import RunView
from .line_sync import SyncLine
from .messages import control_receipt, input_messages, not_confirmed, perhaps_done
from .request import Form

if TYPE_CHECKING:
    from .sync import Client


class SyncAttachment:
    """See `durable_supervisor.Attachment`: the same for threads, answered by a service.

    One thread may iterate while others type; of several inputs, one goes after the other.
    Both outlive the service: events go on behind the cursor; a lease that was held is
    asked for again by the next input.
    """

    def __init__(self, client: Client, run: str, after: int) -> None:
        self._client = client
        self._run = run
        self._line = SyncLine(client, run)
        self.cursor = after

    def __enter__(self) -> Self:
        self._client.find(self._run)  # an unknown run is told at once
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the lease and the connection.  Idempotent; an input that waits is given up."""
        self._line.close()

    def __iter__(self) -> Generator[Event, None, None]:
        with closing(self._client.follow(self._run, after=self.cursor)) as events:
            for event in events:
                self.cursor = event.seq
                yield event

    @property
    def holds_lease(self) -> bool:
        """Is this viewer the one writer?"""
        return self._line.holds_lease

    @property
    def lost(self) -> threading.Event:
        """Set when another viewer has taken the lease over."""
        return self._line.lost

    def lease(self, *, steal: bool = False, timeout: float = 10.0) -> bool:
        """Become the one writer; see `durable_supervisor.Attachment.lease`."""
        check_timeout("timeout", timeout)
        try:
            return self._line.lease(steal=steal, timeout=timeout)
        except TimeoutError:
            raise not_confirmed("lease", self._run, timeout) from None

    def inspect(self) -> RunView:
        """See `Observer.inspect`."""
        return self._client.inspect(self._run)

    def write_stdin(self, data: BytesLike, *, eof: bool = False, timeout: float = 30.0) -> ControlReceipt:
        """See `Observer.write_stdin`.  Raises ``SUBMISSION_INDETERMINATE`` where it may have arrived."""
        whole = stdin_bytes(data)
        if not self._line.settled():
            return self._client.write_stdin(self._run, whole, eof=eof, timeout=timeout)
        for kind, fields in input_messages(whole, eof=eof):
            receipt = self._control(kind, fields, timeout)
        return receipt

    def resize(self, columns: int, rows: int, *, timeout: float = 5.0) -> ControlReceipt:
        """See `Observer.resize`."""
        size = {"columns": terminal_size("columns", columns), "rows": terminal_size("rows", rows)}
        if not self._line.settled():
            return self._client.resize(self._run, columns, rows, timeout=timeout)
        return self._control("resize", size, timeout)

    def stop(self, *, grace: float | None = None, timeout: float | None = None) -> StopReceipt:
        """See `Observer.stop`."""
        return self._client.stop(self._run, grace=grace, timeout=timeout)

    def _control(self, kind: str, fields: Form, timeout: float) -> ControlReceipt:
        check_timeout("timeout", timeout)
        try:
            form = self._line.ask(kind, fields, timeout)
        except TimeoutError:
            raise not_confirmed(kind, self._run, timeout) from None
        if form is None:
            raise perhaps_done(kind, self._run)
        return control_receipt(kind, form)
