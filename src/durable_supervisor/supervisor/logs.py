"""What the supervisor tells its host's logging: verdicts that need a look, and its own errors.

A guest sets nothing up: without a handler of the host's, nothing is printed.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ..journal.rows import RunRow
from ..model.states import RunState

if TYPE_CHECKING:
    from structlog.stdlib import BoundLogger

_NAME = "durable_supervisor"
logging.getLogger(_NAME).addHandler(logging.NullHandler())

_NOTABLE = (RunState.UNKNOWN, RunState.QUARANTINED)


def report(news: RunRow | Exception) -> None:
    """A row that the reconciler changed, or an error that it met."""
    if isinstance(news, Exception):
        _logger().warning("reconcile_failed", error=type(news).__name__, message=str(news))
    elif news.state in _NOTABLE:
        _logger().warning("run_judged", run_id=news.run_id, state=news.state.value, reason=news.reason)


def _logger() -> BoundLogger:
    # Imported at the first use: it costs more than everything else here together.
    import structlog

    # Wrapped here, so that neither the host's structlog settings nor the lack of any matter:
    # one JSON object per message goes to the standard logger of this name.
    logger: BoundLogger = structlog.wrap_logger(
        logging.getLogger(_NAME),
        wrapper_class=structlog.stdlib.BoundLogger,
        processors=[structlog.stdlib.add_log_level, structlog.processors.JSONRenderer()],
    )
    return logger
