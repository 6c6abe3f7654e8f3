"""Controls: stop, signal, stdin.  Logged before applied, applied once, answered by a receipt."""

from __future__ import annotations

import signal
from collections.abc import Callable

from ..model.events import Kind
from .connections import Connection
from .record import Recorder

_REMEMBERED = 4096

# Carries out one control; calls ``done(result fields)`` once its effect is known.
Apply = Callable[[dict[str, object], bytes, Callable[[dict[str, object]], None]], None]


class Controls:
    """Dispatches what arrives on a connection.  ``appliers`` maps op names to their effects.

    A control is named by its id: the same id again is answered with the same
    receipt and has no second effect.
    """

    def __init__(self, recorder: Recorder, appliers: dict[str, Apply]) -> None:
        self._recorder = recorder
        self._appliers = appliers
        self._receipts: dict[str, dict[str, object]] = {}
        self._pending: dict[str, list[Connection]] = {}

    def on_message(self, connection: Connection, message: dict[str, object], blob: bytes) -> None:
        op, control_id = message.get("op"), message.get("id")
        if op == "watch" and isinstance(message.get("after"), int):
            connection.watching = int(str(message["after"]))
            if self._recorder.log.head > connection.watching:
                connection.watching = None
                connection.send({"type": "head", "head": self._recorder.log.head})
        elif op == "ping":
            connection.send({"type": "pong", "head": self._recorder.log.head})
        elif op not in self._appliers or not isinstance(control_id, str) or not 0 < len(control_id) <= 128:
            connection.send({"type": "error", "id": control_id, "error": "invalid_control"})
        elif control_id in self._receipts:
            connection.send(self._receipts[control_id])
        elif control_id in self._pending:
            self._pending[control_id].append(connection)
        else:
            self._apply(str(op), control_id, connection, message, blob)

    def _apply(
        self, op: str, control_id: str, connection: Connection, message: dict[str, object], blob: bytes
    ) -> None:
        received: dict[str, object] = {"id": control_id, "op": op, "peer_pid": connection.pid}
        for name in ("grace", "signal", "target"):
            if name in message:
                received[name] = message[name]
        if op == "stdin":
            received["bytes"] = len(blob)  # never the bytes themselves
        self._recorder.record(Kind.CONTROL_RECEIVED, received)
        self._recorder.flush()
        self._pending[control_id] = [connection]
        self._appliers[op](message, blob, lambda result: self._done(op, control_id, result))

    def _done(self, op: str, control_id: str, result: dict[str, object]) -> None:
        if control_id not in self._pending:
            return
        applied = {"id": control_id, "op": op, **result}
        self._recorder.record(Kind.CONTROL_APPLIED, applied)
        self._recorder.flush()
        receipt: dict[str, object] = {"type": "receipt", "seq": self._recorder.log.head, **applied}
        if len(self._receipts) >= _REMEMBERED:
            del self._receipts[next(iter(self._receipts))]
        self._receipts[control_id] = receipt
        for connection in self._pending.pop(control_id):
            connection.send(receipt)


def grace_of(message: dict[str, object], default: float) -> float:
    """The grace a stop asks for, in seconds; out of range or absent: the run's own."""
    grace = message.get("grace")
    if isinstance(grace, bool) or not isinstance(grace, int | float) or not 0 <= grace <= 86400:
        return default
    return float(grace)


def signal_of(message: dict[str, object]) -> int | None:
    """A valid signal number, or None."""
    signo = message.get("signal")
    return signo if isinstance(signo, int) and signo in signal.valid_signals() else None
