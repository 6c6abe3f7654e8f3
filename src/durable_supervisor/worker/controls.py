"""Controls, of a run and of its input.  Logged before applied, applied once, answered by a receipt."""

from __future__ import annotations

import signal
from collections.abc import Callable

from ..model.events import Kind
from ..model.winsize import is_side
from ..process.failpoints import failpoint
from .connections import Connection
from .lease import INPUT_OPS, LEASE_OPS, WriterLease, refusal
from .record import Recorder

_REMEMBERED = 4096
MAX_GRACE = 10 * 365 * 86400.0  # as of a run's own limits

# Carries out one control; calls ``done(result fields)`` once its effect is known.
Apply = Callable[[dict[str, object], bytes, Callable[[dict[str, object]], None]], None]


class Controls:
    """Dispatches what arrives on a connection.  ``appliers`` maps op names to their effects, as they are now.

    A control is named by its id: the same id again is answered with the same
    receipt and has no second effect.
    """

    def __init__(self, recorder: Recorder, appliers: dict[str, Apply]) -> None:
        self._recorder = recorder
        self.appliers = appliers
        self.acknowledged: Callable[[int, int], None] = _nobody_waits  # takes bytes of stdout and of stderr
        # With the token of the only connection that a lease's receipt is for: to others it would be a lie.
        self._receipts: dict[str, tuple[dict[str, object], object]] = {}
        self._pending: dict[str, list[Connection]] = {}
        self._lease = WriterLease()

    def on_message(self, connection: Connection, message: dict[str, object], blob: bytes) -> None:
        op, control_id = message.get("op"), message.get("id")
        after = message.get("after")
        if op == "watch" and isinstance(after, int):
            # Not the log's own head: who is told of an event that waits to be written asks again, and again.
            head = self._recorder.told_head
            connection.watching = None if head > after else after
            if head > after:
                connection.send({"type": "head", "head": head})
            else:
                self._recorder.catch_up()
        elif op == "ping":
            connection.send({"type": "pong", "head": self._recorder.log.head})
        elif op == "acknowledge" and (counts := _counts(message)) is not None:
            self.acknowledged(*counts)
        elif not (isinstance(op, str) and is_control_id(control_id) and self._knows(op, message)):
            _refuse(connection, control_id)
        elif control_id in self._receipts:
            self._repeat(connection, str(control_id))
        elif control_id in self._pending:
            self._pending[control_id].append(connection)
        else:
            self._apply(op, str(control_id), connection, message, blob)

    def _knows(self, op: str, message: dict[str, object]) -> bool:
        if op in LEASE_OPS:
            return isinstance(message.get("steal", False), bool)
        return op in self.appliers and (op != "resize" or has_size(message))

    def _repeat(self, connection: Connection, control_id: str) -> None:
        receipt, only_for = self._receipts[control_id]
        if only_for in (None, connection.token):
            connection.send(receipt)
        else:
            _refuse(connection, control_id)

    def _apply(
        self, op: str, control_id: str, connection: Connection, message: dict[str, object], blob: bytes
    ) -> None:
        received = {"id": control_id, "op": op, "peer_pid": connection.pid, **_shown(op, message, blob)}
        self._recorder.record(Kind.CONTROL_RECEIVED, received)
        self._recorder.flush()
        failpoint("worker.control_received")
        self._pending[control_id] = [connection]
        if op in LEASE_OPS:
            result = self._lease.change(op, connection, steal=message.get("steal") is True)
            self._done(op, control_id, result)
        elif op in INPUT_OPS and not self._lease.admits(connection):
            self._done(op, control_id, refusal("not_writer", self._lease.holder))
        else:
            self.appliers[op](message, blob, lambda result: self._done(op, control_id, result))

    def _done(self, op: str, control_id: str, result: dict[str, object]) -> None:
        if control_id not in self._pending:
            return
        applied = {"id": control_id, "op": op, **result}
        self._recorder.record(Kind.CONTROL_APPLIED, applied)
        self._recorder.flush()
        failpoint("worker.control_applied")
        receipt: dict[str, object] = {"type": "receipt", "seq": self._recorder.log.head, **applied}
        if len(self._receipts) >= _REMEMBERED:
            del self._receipts[next(iter(self._receipts))]
        waiting = self._pending.pop(control_id)
        self._receipts[control_id] = (receipt, waiting[0].token if op in LEASE_OPS else None)
        for connection in waiting:
            connection.send(receipt)


def _refuse(connection: Connection, control_id: object) -> None:
    echoed = control_id if isinstance(control_id, str) else None
    connection.send({"type": "error", "id": echoed, "error": "invalid_control"})


def _nobody_waits(stdout: int, stderr: int) -> None:
    """There is no output yet."""


def _counts(message: dict[str, object]) -> tuple[int, int] | None:
    """Bytes of stdout and stderr that were consumed; None for a malformed message."""
    stdout, stderr = message.get("stdout", 0), message.get("stderr", 0)
    if not isinstance(stdout, int) or not isinstance(stderr, int):
        return None
    return stdout, stderr


def _shown(op: str, message: dict[str, object], blob: bytes) -> dict[str, object]:
    """What of a control is logged.  Whatever else a peer sends is ignored, so it is not logged either."""
    if op == "stop":
        grace = grace_of(message, -1.0)
        return {"grace": grace} if grace >= 0 else {}
    if op == "signal":
        target = "tree" if message.get("target") == "tree" else "leader"
        return {"signal": signal_of(message), "target": target}
    if op == "stdin":
        return {"bytes": len(blob)}  # never the bytes themselves
    if op == "resize":
        columns, rows = size_of(message)
        return {"columns": columns, "rows": rows}
    if op == "lease":
        return {"steal": message.get("steal") is True}
    return {}


def has_size(message: dict[str, object]) -> bool:
    """Does it have columns and rows that a terminal can have?"""
    return is_side(message.get("columns")) and is_side(message.get("rows"))


def size_of(message: dict[str, object]) -> tuple[int, int]:
    """Its columns and rows, of which `has_size` is known."""
    return int(str(message["columns"])), int(str(message["rows"]))


def grace_of(message: dict[str, object], default: float) -> float:
    """The grace a stop asks for, in seconds; out of range or absent: the run's own."""
    grace = message.get("grace")
    if isinstance(grace, bool) or not isinstance(grace, int | float) or not 0 <= grace <= MAX_GRACE:
        return default
    return float(grace)


def signal_of(message: dict[str, object]) -> int | None:
    """A valid signal number, or None."""
    signo = message.get("signal")
    if isinstance(signo, bool) or not isinstance(signo, int) or signo not in signal.valid_signals():
        return None
    return signo


def signal_name(signo: int) -> str:
    """``SIGTERM`` for 15; a real-time signal without a name of its own shows its number."""
    try:
        return signal.Signals(signo).name
    except ValueError:
        return f"SIG{signo}"


def is_control_id(value: object) -> bool:
    """1 to 128 plain characters: ids are logged and printed."""
    return isinstance(value, str) and 0 < len(value) <= 128 and value.isascii() and value.isprintable()
