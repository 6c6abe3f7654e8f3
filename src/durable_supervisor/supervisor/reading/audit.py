"""Searching all that is stored about a run for secrets that should not be there."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from ...bundle.snapshot import Segment
from ...model.audit import AUDIT_PAGE, AuditReport, checked_secrets
from ...model.sieve import Sieve
from ...runlog.create import read_header
from ...runlog.paths import RunPaths
from .lookup import Lookup

if TYPE_CHECKING:
    from ...journal.rows import RunRow

Tell = Callable[[int, int], object]  # how many of how many events are searched


async def audit(lookup: Lookup, run: str, secrets: Sequence[str | bytes], tell: Tell) -> AuditReport:
    """All that there is now: its events, headers, journal rows, and the bytes of its files.

    A page at a time, so that nobody has to wait for a long log to be through.
    """
    sieve = Sieve(checked_secrets(secrets))
    row = await lookup.row(run)
    await _events(lookup, row, sieve, tell)
    history = await lookup.history(row)
    await lookup.blocking(partial(sieve.document, "journal", history.to_dict()))
    paths = lookup.paths(row)
    with await lookup.snapshot(row) as log:
        if not log.segments:
            sieve.problems.append("its log is missing")
        for segment in log.segments:
            await lookup.blocking(partial(_file, sieve, segment, paths))
    return sieve.report(row.run_id)


async def _events(lookup: Lookup, row: RunRow, sieve: Sieve, tell: Tell) -> None:
    """As far as they go now: beside a program that writes faster than we read there is no end."""
    head, after = 0, 0
    while True:
        page = await lookup.page(row, after, AUDIT_PAGE, None, True)
        head = head or page.head
        await lookup.blocking(partial(sieve.page, page.events))
        tell(min(page.next_after, head), head)
        if page.next_after >= head or page.next_after == after:
            return
        after = page.next_after


def _file(sieve: Sieve, segment: Segment, paths: RunPaths) -> None:
    header, _ = read_header(segment.fd)
    if header is not None:
        sieve.document("header", header.detail)
    sieve.raw(os.path.basename(paths.segment_file(segment.attempt, segment.key)), segment.chunks())
