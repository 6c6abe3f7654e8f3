"""Writes a run's bundle, in constant memory however long its log is."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from .. import __version__
from ..journal.history import History
from ..model.events import Event
from ..model.states import OPEN_STATES
from ..model.view import RunView
from ..runlog.paths import RunPaths
from ..runlog.reader import LogReader
from . import contents
from .cast import cast_lines
from .report.collect import Collector
from .report.page import render
from .snapshot import Snapshot
from .writer import BundleWriter

_PAGE = 1000

Write = Callable[[bytes], object]
Tell = Callable[[str], object]


@dataclass(frozen=True, slots=True)
class Source:
    """A run to export: what is known about it, its journal rows, its files, and these held open.

    ``view`` was looked at before and after ``log`` was taken, with the same state both times.
    """

    view: RunView
    history: History
    paths: RunPaths
    log: Snapshot


def export(
    source: Source, write: Write, *, report: bool = True, tell: Tell = lambda member: None
) -> contents.Manifest:
    """Write the bundle; ``tell`` hears the name of each member before it is written.

    The same finished run gives the same bytes (and with another version of zlib the same manifest).
    """
    view, writer = source.view, BundleWriter(write)

    def add(name: str, chunks: Iterable[bytes]) -> None:
        tell(name)
        writer.add(name, chunks)

    add(contents.RUN, [_document(view.to_dict())])
    if view.receipt is not None:
        add(contents.RECEIPT, [_document(view.receipt)])
    add(contents.JOURNAL, [_document(source.history.to_dict())])
    for segment in source.log.segments:
        name = contents.log_name(source.paths.shard, view.id, segment.attempt, segment.key)
        add(name, segment.chunks())
    if view.pty is not None:
        add(contents.CAST, cast_lines(view, events(source.paths, view)))
    if report:
        add(contents.REPORT, _report(source))
    manifest = _manifest(source, writer)
    tell(contents.MANIFEST)
    writer.add(contents.MANIFEST, [_document(manifest.to_dict())])
    writer.finish()
    return manifest


def events(paths: RunPaths, view: RunView) -> Iterator[Event]:
    """A run's events as far as ``view`` knows them."""
    reader, after = LogReader(paths, view.attempt), 0
    while after < view.head:
        page = reader.page(after, _PAGE)
        yield from (event for event in page.events if event.seq <= view.head)
        if page.next_after == after:
            return
        after = page.next_after


def _report(source: Source) -> Iterator[bytes]:
    collector = Collector()
    for event in events(source.paths, source.view):
        collector.add(event)
    return render(source.view, collector)


def _manifest(source: Source, writer: BundleWriter) -> contents.Manifest:
    view = source.view
    return contents.Manifest(
        version=__version__,
        run_id=view.id,
        shard=source.paths.shard,
        attempts=view.attempt,
        state=view.state.value,
        open=view.state in OPEN_STATES,
        head=view.head,
        members=writer.members,
    )


def _document(form: dict[str, object]) -> bytes:
    return (json.dumps(form, indent=1, allow_nan=False) + "\n").encode("ascii")
