"""The reading verbs over a bundle, as `Observer` has them over a state directory."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import AsyncGenerator, Callable, Collection, Sequence
from typing import NoReturn, Self

from ..model.answers import FeedEntry, ListPage
from ..model.arguments import BytesLike, kinds_of, label_of, page_limit, position, states_of
from ..model.audit import AUDIT_PAGE, AuditReport, checked_secrets
from ..model.errors import ErrorCode, Phase, SupervisorError, unknown_run
from ..model.events import Event
from ..model.page import Page
from ..model.sieve import Sieve
from ..model.states import RunState
from ..model.view import RunView
from ..runlog.paths import RunPaths
from ..runlog.reader import LogReader
from .archive import Archive
from .contents import JOURNAL, RUN, FormatError
from .told import view_of
from .unpack import unpack

_PAGE = 256


class BundleReader:
    """One run, from the bundle at ``path``.  Its log is unpacked, privately, when events are asked for.

    A ``run`` is the bundle's path, or its run's id or the beginning of that.  Every verb
    raises SupervisorError ``INVALID_REQUEST`` for a bundle that is not whole and true, and for a
    control: nothing that a bundle tells of is in reach.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.archive = Archive(path)
        self.manifest = self.archive.manifest
        self._unpacked: str | None = None
        self._log: LogReader | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Let go of the file and remove what was unpacked.  Idempotent."""
        self.archive.close()
        self._log = None
        if self._unpacked is not None:
            shutil.rmtree(self._unpacked, ignore_errors=True)
            self._unpacked = None

    @property
    def state_dir(self) -> str:
        """What stands for the state directory: the bundle."""
        return self.path

    async def inspect(self, run: str) -> RunView:
        """The run as it was when it was exported."""
        self._check(run)
        try:
            view = view_of(self.archive.document(RUN))
        except FormatError as problem:
            raise self._malformed(RUN) from problem
        if view.id != self.manifest.run_id:
            raise self._malformed(RUN)
        return view

    async def list(
        self,
        *,
        limit: int = 100,
        before: int | None = None,
        states: Collection[RunState] | None = None,
        label: tuple[str, str] | None = None,
        owner: str | None = None,
        collected: bool = False,
    ) -> ListPage:
        """The one run, if it is asked for."""
        page_limit(limit)
        wanted, label = states_of(states), label_of(label)
        view = await self.inspect(self.path)
        fits = (
            (before is None or view.serial < before)
            and (wanted is None or view.state in wanted)
            and (label is None or view.labels.get(label[0]) == label[1])
            and owner in (None, view.owner)
        )
        return ListPage([view] if fits else [], None)

    async def events(
        self,
        run: str,
        *,
        after: int = 0,
        limit: int = 100,
        kinds: Collection[str] | None = None,
        output: bool = True,
    ) -> Page:
        """As `Observer.events`, from the log in the bundle."""
        self._check(run)
        wanted = kinds_of(kinds)
        return self._reader().page(position("after", after), page_limit(limit), kinds=wanted, output=output)

    async def follow(
        self,
        run: str,
        *,
        after: int = 0,
        kinds: Collection[str] | None = None,
        output: bool = True,
    ) -> AsyncGenerator[Event, None]:
        """Every event after the cursor.  Ends where the bundle does, also for a run that went on."""
        while True:
            page = await self.events(run, after=after, limit=_PAGE, kinds=kinds, output=output)
            for event in page.events:
                yield event
            if page.end or page.next_after == after:
                return
            after = page.next_after

    async def feed(
        self, *, after: int = 0, limit: int = 100, owner: str | None = None
    ) -> Sequence[FeedEntry]:
        """The run's changes of state, at the positions that they had."""
        after, limit = position("after", after), page_limit(limit)
        try:
            entries = [FeedEntry.from_dict(form) for form in self.archive.document(JOURNAL)["feed"]]
            return [entry for entry in entries if entry.position > after][:limit]
        except (KeyError, TypeError, ValueError, AttributeError) as problem:
            raise self._malformed(JOURNAL) from problem

    async def audit(
        self,
        run: str,
        secrets: Sequence[str | bytes],
        *,
        tell: Callable[[int, int], object] = lambda done, of: None,
    ) -> AuditReport:
        """As `Observer.audit`, of all that is in the bundle."""
        self._check(run)
        sieve = Sieve(checked_secrets(secrets))
        after = 0
        while True:
            page = self._reader().page(after, AUDIT_PAGE)
            sieve.page(page.events)
            tell(page.next_after, page.head)
            if page.next_after == after:
                break
            after = page.next_after
        for name in self.manifest.members:
            sieve.raw(name, self.archive.chunks(name))
        return sieve.report(self.manifest.run_id)

    def attach(self, run: str, *, after: int = 0) -> NoReturn:
        """Refused, as every control is."""
        raise self._no_control()

    async def wait(self, run: str, *, timeout: float | None = None) -> NoReturn:
        """Refused: a bundle does not change."""
        raise self._no_control()

    async def stop(self, run: str, *, grace: float | None = None, timeout: float | None = None) -> NoReturn:
        raise self._no_control()

    async def signal(
        self, run: str, signo: int | str, *, target: str = "leader", timeout: float = 5.0
    ) -> NoReturn:
        raise self._no_control()

    async def write_stdin(
        self, run: str, data: BytesLike, *, eof: bool = False, timeout: float = 30.0
    ) -> NoReturn:
        raise self._no_control()

    async def resize(self, run: str, columns: int, rows: int, *, timeout: float = 5.0) -> NoReturn:
        raise self._no_control()

    async def acknowledge(self, run: str, *, stdout: int = 0, stderr: int = 0) -> NoReturn:
        raise self._no_control()

    def _check(self, run: str) -> None:
        if run != self.path and not (run and self.manifest.run_id.startswith(run.lower())):
            raise unknown_run(run)

    def _reader(self) -> LogReader:
        if self._log is None:
            self._log = LogReader(self.unpacked(), self.manifest.attempts, frozen=True)
        return self._log

    def unpacked(self) -> RunPaths:
        """The log's files, in a directory of our own until `close`."""
        if self._unpacked is None:
            self._unpacked = tempfile.mkdtemp(prefix="durable-supervisor-bundle-")  # 0700
        return unpack(self.archive, self._unpacked)

    def _malformed(self, member: str) -> SupervisorError:
        return SupervisorError(
            ErrorCode.INVALID_REQUEST,
            f"bundle: {member} does not say what it should",
            phase=Phase.READ,
            hint="it was made by something else, or changed",
            details={"field": "bundle", "path": self.path, "member": member},
        )

    def _no_control(self) -> SupervisorError:
        return SupervisorError(
            ErrorCode.INVALID_REQUEST,
            "run: a bundle can be read, nothing else",
            phase=Phase.VALIDATE,
            hint="give the run's id, on the machine that has it",
            details={"field": "run", "path": self.path},
        )
