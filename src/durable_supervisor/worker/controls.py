"""Controls: stop, signal, stdin.  Logged before applied, applied once, answered by a receipt."""

from __future__ import annotations

import signal
from collections.abc import Callable

from ..model.events import Kind
from ..process.failpoints import failpoint
from .connections import Connection
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
        self._receipts: dict[str, dict[str, object]] = {}
        self._pending: dict[str, list[Connection]] = {}

    def on_message(self, connection: Connection, message: dict[str, object], blob: bytes) -> None:
        op, control_id = message.get("op"), message.get("id")
        after = message.get("after")
        if op == "watch" and isinstance(after, int):
            connection.watching = after
            if self._recorder.log.head > connection.watching:
                connection.watching = None
                connection.send({"type": "head", "head": self._recorder.log.head})
        elif op == "ping":
            connection.send({"type": "pong", "head": self._recorder.log.head})
        elif not (isinstance(op, str) and op in self.appliers and is_control_id(control_id)):
            echoed = control_id if isinstance(control_id, str) else None
            connection.send({"type": "error", "id": echoed, "error": "invalid_control"})
        elif control_id in self._receipts:
            connection.send(self._receipts[control_id])
        elif control_id in self._pending:
            self._pending[control_id].append(connection)
        else:
            self._apply(op, str(control_id), connection, message, blob)

    def _apply(
        self, op: str, control_id: str, connection: Connection, message: dict[str, object], blob: bytes
    ) -> None:
        received: dict[str, object] = {"id": control_id, "op": op, "peer_pid": connection.pid}
        # Whatever else a peer sends is ignored, so it is not logged either.
        grace = grace_of(message, -1.0)
        if op == "stop" and grace >= 0:
            received["grace"] = grace
        if op == "signal":
            received["signal"] = signal_of(message)
            received["target"] = "tree" if message.get("target") == "tree" else "leader"
        if op == "stdin":
            received["bytes"] = len(blob)  # never the bytes themselves
        self._recorder.record(Kind.CONTROL_RECEIVED, received)
        self._recorder.flush()
        failpoint("worker.control_received")
        self._pending[control_id] = [connection]
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
        self._receipts[control_id] = receipt
        for connection in self._pending.pop(control_id):
            connection.send(receipt)


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
