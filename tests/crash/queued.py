"""The steps of a queued run's life at which something may die, and what can be known then."""

from __future__ import annotations

FINISHED, NEVER = ("finished",), ("not_started",)

# Where the host dies that lets the run go.
QUEUE_HOST = {
    "queue.picked": FINISHED,
    "queue.marking": FINISHED,
    "queue.marked": FINISHED,  # out of the queue, its worker not told: the next owner tells it
    "queue.sent": FINISHED,
}

# Where a host dies that admits it: as with any other run, but that its worker waits then.
QUEUE_START = {
    "start.log_created": ("absent",),
    "start.committed": NEVER,
    "start.spawned": FINISHED,
    "start.answered": FINISHED,
}

# Where the waiting worker dies.
WAITING = {
    "waiting.queued": NEVER,
    "waiting.dispatched": NEVER,
    "waiting.refused": NEVER,
}
