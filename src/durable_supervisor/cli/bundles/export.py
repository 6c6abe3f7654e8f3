"""``export`` and ``report``: what a run leaves behind, as one file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Annotated

from durable_supervisor.model.errors import SupervisorError, invalid
from durable_supervisor.model.states import OPEN_STATES

from ..opening.complete import run_of_request
from ..opening.session import drive, needs_files, observing
from ..opening.unknown import explain, is_bundle
from ..options.declared import Option
from ..options.shared import Call, Json, RunId, RunOrBundle, Settings, SocketPath, StateDir, settings
from ..output import exit_codes, out
from ..output.escape import escape_text
from ..reading.events import recorded
from .new_file import NewFile

if TYPE_CHECKING:
    from durable_supervisor.bundle.export import Source
    from durable_supervisor.model.view import RunView
    from durable_supervisor.supervisor.reading.reading import Reading

_Output = Annotated[str, Option("--output", "-o", metavar="FILE", help="Where to write it; - is stdout.")]
_Force = Annotated[bool, Option("--force", help="Replace FILE if it is there.")]
_NoReport = Annotated[bool, Option("--no-report", help="Leave the HTML report out.")]
_MOST_LOOKS = 100
_CHUNK = 1 << 20


def export(
    call: Call,
    run: RunId,
    output: _Output,
    no_report: _NoReport = False,
    force: _Force = False,
    json: Json = False,
    state_dir: StateDir = None,
    socket: SocketPath = None,
) -> int:
    """Write a run into one file: log, receipt, rows, report.

    The same finished run gives the same bytes, an imported one those that came. A run
    that is not over is exported as far as it has come, and marked so. inspect, events,
    logs, replay, report and import take the file.

    \b
    Example:
      dsup export 4f7k -o nightly.zip
      dsup events ./nightly.zip
    """
    shared = settings(call, json, state_dir, socket)
    if is_bundle(run):
        raise invalid("run", "is a bundle already", "copy the file")
    needs_files(shared)
    _check_output(output, shared)
    return _export(shared, run, output, report=not no_report, force=force)


def _export(shared: Settings, run: str, output: str, *, report: bool, force: bool) -> int:
    with NewFile(output, force=force) as file:
        with _reading(shared) as reading:
            view = _write(reading, run, file, report=report)
        file.keep()
    if view.state in OPEN_STATES:
        out.note(f"the run was {view.state}: the bundle has what there was up to event {view.head}")
    if output != "-":
        _tell(shared, "export", view, output, file.size)
    return exit_codes.OK


def _write(reading: Reading, run: str, file: NewFile, *, report: bool) -> RunView:
    from durable_supervisor.bundle.export import export as write_bundle
    from durable_supervisor.supervisor.imports.imported import BUNDLE, is_imported

    row = reading.row(run)
    if is_imported(row):
        with open(row.home.file(BUNDLE), "rb") as bundle:
            while data := bundle.read(_CHUNK):
                file.write(data)
        return row.view
    with _held(reading, row.run_id) as source:
        write_bundle(source, file.write, report=report, tell=_progress(source))
        return source.view


@contextmanager
def _reading(shared: Settings) -> Iterator[Reading]:
    from durable_supervisor.process.open_files import raise_limit
    from durable_supervisor.supervisor.reading.reading import Reading
    from durable_supervisor.supervisor.state import state_dir as directory

    place = directory.locate(shared.state_dir)
    directory.check(place)
    raise_limit()  # a long log has many segments, all held open
    with closing(Reading(place)) as reading:
        try:
            yield reading
        except SupervisorError as error:
            explain(error, place.path, partial(run_of_request, shared.state_dir))
            raise


@contextmanager
def _held(reading: Reading, run: str) -> Iterator[Source]:
    """The run and its log as of one state: looked at before the log is taken, and after."""
    from durable_supervisor.bundle.export import Source

    for _ in range(_MOST_LOOKS):
        row = reading.row(run)
        view = reading.inspect(row.run_id, live=True)
        with reading.snapshot(row) as log:
            after = reading.inspect(row.run_id)
            if (after.state, after.attempt) == (view.state, row.attempt):
                yield Source(view, reading.history(row), reading.paths(row), log)
                reading.check_kept(row)  # its events are read again, by name
                return
    raise invalid("run", "changes its state faster than it can be copied", "try again")


def report(
    call: Call,
    run: RunOrBundle,
    output: _Output,
    force: _Force = False,
    json: Json = False,
    state_dir: StateDir = None,
    socket: SocketPath = None,
) -> int:
    """Write a run's report: one HTML page that needs nothing else.

    How it ended and how that is known, a picture of its time, its output to search
    in. RUN may be a bundle.

    \b
    Example:
      dsup report 4f7k -o report.html
    """
    shared = settings(call, json, state_dir, socket)
    _check_output(output, shared)
    return drive(_report(shared, run, output, force=force))


async def _report(shared: Settings, run: str, output: str, *, force: bool) -> int:
    from durable_supervisor.bundle.report.collect import Collector
    from durable_supervisor.bundle.report.page import render

    collector = Collector()
    with NewFile(output, force=force) as file:
        async with observing(shared, run) as observer:
            view = await observer.inspect(run)
            async for event in recorded(observer, run):
                collector.add(event)
        for piece in render(view, collector):
            file.write(piece)
        file.keep()
    if output != "-":
        _tell(shared, "report", view, output, file.size)
    return exit_codes.OK


def _check_output(output: str, shared: Settings) -> None:
    if output != "-":
        return
    if out.is_terminal(out.STDOUT):
        raise invalid("output", "stdout is a terminal", "give a file, or redirect stdout")
    if shared.json:
        raise invalid("json", "stdout has the file, and no room for a document", "give -o a file")


def _progress(source: Source) -> Callable[[str], None]:
    """A line for each part of a large log, to a person at a terminal."""
    large = source.log.size > 64 << 20
    if not (large and out.is_terminal(out.STDERR)):
        return lambda member: None
    return lambda member: out.note(escape_text(f"writing {member}..."))


def _tell(shared: Settings, document: str, view: RunView, output: str, size: int) -> None:
    from durable_supervisor.model.schema import schema_name

    form: dict[str, object] = {
        "schema": schema_name(document),
        "run_id": view.id,
        "state": view.state.value,
        "output": output,
        "bytes": size,
    }
    if shared.json:
        out.document(form)
        return
    from durable_supervisor.model import quantities

    out.line(f"{view.id}  {quantities.size(size)}  {escape_text(output)}")
