"""Who may write: at most one connection holds the lease on a run's input."""

from __future__ import annotations

from .connections import Connection

LEASE_OPS = frozenset({"lease", "unlease"})
INPUT_OPS = frozenset({"stdin", "close_stdin", "resize"})


class WriterLease:
    """Bound to its connection, and free when that ends: no clock, nothing to renew.

    While nobody holds it, everybody may write.
    """

    def __init__(self) -> None:
        self._holder: Connection | None = None

    @property
    def holder(self) -> Connection | None:
        if self._holder is not None and not self._holder.open:
            self._holder = None
        return self._holder

    def admits(self, connection: Connection) -> bool:
        return self.holder in (None, connection)

    def change(self, op: str, connection: Connection, *, steal: bool) -> dict[str, object]:
        """Take it or give it back; the result of the control."""
        holder = self.holder
        if holder not in (None, connection) and not (op == "lease" and steal):
            return refusal("held" if op == "lease" else "not_writer", holder)
        if op == "unlease":
            self._holder = None
            return {"result": "released"}
        self._holder = connection
        if holder not in (None, connection):
            holder.send({"type": "lease_lost", "by_pid": connection.pid})
        return {"result": "granted"}


def refusal(result: str, holder: Connection | None) -> dict[str, object]:
    """Another has it: say who."""
    return {"result": result, "holder_pid": None if holder is None else holder.pid}
