"""Run ids for shell completion: one short read of the journal, never an error."""

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
        from durable_supervisor.supervisor.state_dir import locate

        with JournalReader.open(locate(state_dir).journal, busy_seconds=_BUSY_SECONDS) as reader:
            rows = reader.read(lambda conn: list_runs(conn, limit=_MOST))
    except Exception:  # noqa: BLE001  a shell shows whatever a completion prints
        return []
    return [(row.run_id, _help(row)) for row in rows if row.run_id.startswith(incomplete)]


def _help(row: RunRow) -> str:
    from .describe import command_line, state_word

    return f"{state_word({'state': row.state.value, 'outcome': row.outcome})}: {command_line(row.argv)}"
