"""What the supervisor tells its host's logging: verdicts that need a look, and its own errors.

A guest sets nothing up: without a handler of the host's, nothing is printed.
"""

from __future__ import annotations

import json
import logging
from collections.abc import MutableMapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ...journal.rows import RunRow
from ...model.errors import SupervisorError
from ...model.states import RunState
from ...model.tokens import without_tokens

if TYPE_CHECKING:
    from structlog.stdlib import BoundLogger

_LOGGER = logging.getLogger("durable_supervisor")  # kept: to ask for it takes a lock, at each change of a run
_LOGGER.addHandler(logging.NullHandler())

_NOTABLE = (RunState.UNKNOWN, RunState.QUARANTINED)


def report(news: RunRow | Exception) -> None:
    """A row that the reconciler changed, or an error that was met.  Never raises OSError."""
    with suppress(OSError):  # whoever is short of descriptors may find none to load the logger with
        _report(news)


def _report(news: RunRow | Exception) -> None:
    if isinstance(news, Exception):
        # The text of an unforeseen exception may quote anything.
        message = str(news) if isinstance(news, SupervisorError) else None
        logger().warning("reconcile_failed", error=type(news).__name__, message=message)
    elif news.state in _NOTABLE:
        logger().warning("run_judged", run_id=news.run_id, state=news.state.value, reason=news.reason)
    elif _LOGGER.isEnabledFor(logging.INFO):
        logger().info("run_changed", run_id=news.run_id, state=news.state.value, reason=news.reason)


def logger() -> BoundLogger:
    """The product's own; its events are one JSON object each, whatever the host does with them."""
    # Imported at the first use: it costs more than everything else here together.
    import structlog

    # Wrapped here, so that neither the host's structlog settings nor the lack of any matter.
    made: BoundLogger = structlog.wrap_logger(
        _LOGGER,
        wrapper_class=structlog.stdlib.BoundLogger,
        processors=[structlog.stdlib.filter_by_level, structlog.stdlib.add_log_level, _render],
    )
    return made


def _render(_: Any, __: str, event: MutableMapping[str, Any]) -> tuple[tuple[str], dict[str, Any]]:
    """JSON as the message; ``record.fields`` for a handler that has a form of its own."""
    fields = without_tokens(event)
    return (json.dumps(fields, default=str),), {"extra": {"fields": fields}}
