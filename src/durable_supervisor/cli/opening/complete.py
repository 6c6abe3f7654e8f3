"""Run ids for shell completion and hints: one short read of the journal, never an error."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from durable_supervisor.journal.rows import RunRow

_MOST = 200
_BUSY_SECONDS = 0.2  # a Tab must not hang


def run_ids(state_dir: str | None, incomplete: str) -> list[tuple[str, str]]:
    """``(run id, help)`` of recent runs that begin with what was typed."""
    try:
        from durable_supervisor.journal.listing import list_runs
        from durable_supervisor.journal.reader import JournalReader
        from durable_supervisor.supervisor.imports.imported import Imports
        from durable_supervisor.supervisor.state.state_dir import locate

        place = locate(state_dir)
        with JournalReader.open(place.journal, busy_seconds=_BUSY_SECONDS) as reader:
            rows = reader.read(lambda conn: list_runs(conn, limit=_MOST))
        imported = Imports(place.imported).find(incomplete)[:_MOST]
    except Exception:  # noqa: BLE001  a shell shows whatever a completion prints
        return []
    found = [(row.run_id, _help(row)) for row in rows if row.run_id.startswith(incomplete)]
    return found + [(home.run_id, "imported") for home in imported]


def run_of_request(state_dir: str | None, request_id: str) -> str | None:
    """The run that a request id of ours stands for; None also on any trouble: it is for a hint."""
    try:
        from durable_supervisor.journal.reader import JournalReader
        from durable_supervisor.journal.runs import find_request
        from durable_supervisor.model.request import DEFAULT_OWNER
        from durable_supervisor.supervisor.state.state_dir import locate

        with JournalReader.open(locate(state_dir).journal, busy_seconds=_BUSY_SECONDS) as reader:
            row = reader.read(lambda conn: find_request(conn, DEFAULT_OWNER, request_id))
    except Exception:  # noqa: BLE001  the error that it would explain is the one to show
        return None
    return None if row is None else row.run_id


def _help(row: RunRow) -> str:
    from ..output.describe import command_line, state_word

    return f"{state_word({'state': row.state.value, 'outcome': row.outcome})}: {command_line(row.argv)}"
