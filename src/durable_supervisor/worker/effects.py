"""What each control does to the run."""

from __future__ import annotations

import os
from collections.abc import Callable

from ..model.events import Kind
from ..process import tree
from .controls import Apply, grace_of, signal_name, signal_of, size_of

TYPE_CHECKING = False  # importing typing would cost every worker's start some milliseconds
if TYPE_CHECKING:
    from .tending import Tending

Done = Callable[[dict[str, object]], None]


class Effects:
    """The table from op names to effects, over one tended run."""

    def __init__(self, run: Tending) -> None:
        self._run = run
        most = run.spec.max_stdin_bytes
        self._stdin_left = None if most is None else most - len(run.spec.stdin_bytes)

    def table(self) -> dict[str, Apply]:
        return {
            "stop": self._stop,
            "signal": self._signal,
            "stdin": self._stdin,
            "close_stdin": self._close_stdin,
            "resize": self._resize,
            "dispatch": self._dispatch,
        }

    def _stop(self, message: dict[str, object], blob: bytes, done: Done) -> None:
        grace = grace_of(message, self._run.spec.grace)
        done({"result": self._run.begin_stop("stop", grace, str(message["id"]))})

    def _dispatch(self, message: dict[str, object], blob: bytes, done: Done) -> None:
        """A queued run's turn, told once more by a supervisor that cannot know whether it was heard."""
        done({"result": "already_dispatched"})

    def _signal(self, message: dict[str, object], blob: bytes, done: Done) -> None:
        """To the leader alone, unless ``target`` is ``tree``."""
        signo = signal_of(message)
        if signo is None:
            done({"result": "invalid_signal"})
            return
        targets = tree.descendants(os.getpid())
        if message.get("target") != "tree":
            targets = [one for one in targets if one.pid == self._run.leader]
        reached = tree.signal_all(targets, signo)
        if reached:
            sent = {"signal": signo, "name": signal_name(signo), "pids": reached}
            self._run.recorder.record(Kind.PROGRAM_SIGNALLED, sent)
        done({"result": "delivered" if reached else "no_process", "signal": signo, "pids": reached})

    def _stdin(self, message: dict[str, object], blob: bytes, done: Done) -> None:
        """Answered when the bytes are in the pipe, or when they never will be.

        ``following``: how many bytes of the same write come behind these; it is taken whole or not at all.
        """
        feed, left = self._run.stdin, self._stdin_left
        following = message.get("following", 0)
        whole = len(blob) + (following if isinstance(following, int) else 0)
        if feed is None or not feed.accepts:
            done({"result": "closed", "bytes": 0})
        elif left is not None and whole > left:
            done({"result": "over_limit", "bytes": 0})
        elif not feed.room_for(len(blob)):
            done({"result": "busy", "bytes": 0})
        else:
            self._stdin_left = None if left is None else left - len(blob)
            feed.write(blob, lambda result, count: done({"result": result, "bytes": count}))

    def _close_stdin(self, message: dict[str, object], blob: bytes, done: Done) -> None:
        if self._run.stdin is None:
            done({"result": "closed"})
        else:
            self._run.stdin.end(lambda result, _: done({"result": result}))

    def _resize(self, message: dict[str, object], blob: bytes, done: Done) -> None:
        columns, rows = size_of(message)
        resized = self._run.stdin is not None and self._run.stdin.resize(columns, rows)
        done({"result": "resized" if resized else "no_terminal", "columns": columns, "rows": rows})
