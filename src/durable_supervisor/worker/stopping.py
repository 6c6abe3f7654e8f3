"""Walks the stop ladder over the real tree."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

from ..model.events import Kind
from ..process import tree
from ..process.failpoints import failpoint
from ..process.identity import Stat, identity_from_stat
from .ladder import Ladder, Step
from .poller import Poller
from .record import Recorder

_ROUNDS = 5  # of TERM: what forks as fast as that is for the kill rounds
LEFTOVER = "leftover"  # the leader ended by itself; only what it left behind is stopped


class Stopper:
    """At most one ladder per run; later stops can only hasten it.

    ``after_step`` is called after every step, so that whoever died is noticed;
    ``give_up`` with the survivors when the bound has passed.
    """

    def __init__(
        self,
        recorder: Recorder,
        poller: Poller,
        *,
        after_step: Callable[[], None],
        give_up: Callable[[list[dict[str, object]]], None],
    ) -> None:
        # Why the run is being stopped, if it was before its end: decides the outcome.
        self.stop: dict[str, object] | None = None
        self._recorder = recorder
        self._poller = poller
        self._after_step = after_step
        self._give_up = give_up
        self._ladder: Ladder | None = None
        self._terminal_of: int | None = None
        # SIGKILL to the whole tree at once, where the kernel can do that for this run.
        self.kill_all: Callable[[], None] | None = None

    @property
    def active(self) -> bool:
        return self._ladder is not None

    def begin(
        self,
        reason: str,
        grace: float,
        *,
        over: bool,
        control_id: str | None = None,
        terminal_of: int | None = None,
    ) -> str:
        """Start or hasten the ladder.  ``over``: the run has already ended by itself.

        ``terminal_of``: who leads the session that the run's terminal controls, if it has one.
        Answers ``stopping``, ``already_stopping`` or ``already_ended``.
        """
        now = time.monotonic()
        if self._ladder is not None:
            if self._ladder.hasten(grace, now):
                self._descend()
            return "already_stopping" if self.stop is not None else "already_ended"
        self._ladder = Ladder(grace, now, terminal=terminal_of is not None)
        self._terminal_of = terminal_of
        detail: dict[str, object] = {"reason": LEFTOVER if over else reason, "grace": grace}
        if control_id is not None:
            detail["control_id"] = control_id
        if not over:
            self.stop = detail
        self._recorder.record(Kind.RUN_STOPPING, detail)
        self._recorder.flush()
        failpoint("worker.stopping")
        self._descend()
        return "already_ended" if over else "stopping"

    def summary(self) -> dict[str, object] | None:
        """For the receipt: why and whether KILL was needed; None when nobody stopped the run."""
        if self.stop is None or self._ladder is None:
            return None
        return dict(self.stop, escalated=self._ladder.escalated)

    def end(self) -> None:
        """The run is over: no step is taken any more."""
        self._poller.cancel("ladder")

    def _descend(self) -> None:
        assert self._ladder is not None
        step, again = self._ladder.step(time.monotonic())
        self._poller.at("ladder", time.monotonic() + again, self._descend)
        if step is not Step.WAIT:
            targets = tree.descendants(os.getpid())
            if step is Step.TERM:
                self._terminate(targets)
            elif step is Step.HANG_UP:
                self._signal(self._shells(targets), signal.SIGHUP, step)
            else:
                self._signal(targets, signal.SIGKILL, step)
                if self.kill_all is not None:
                    self.kill_all()
                failpoint("worker.killed")
            if step is Step.GIVE_UP and (targets or self.kill_all is not None):
                self._give_up([identity_from_stat(one).to_dict() for one in targets])
        self._after_step()

    def _terminate(self, targets: list[Stat]) -> None:
        """Also who was forked after the look, by one that had not been told yet: else it would live through
        the grace, and be killed without a word.  Not who may clean up for one that has a handler.
        """
        told: set[tuple[int, int]] = set()
        for _ in range(_ROUNDS):
            cleaning_up = any(tree.catches(one, signal.SIGTERM) for one in targets)
            self._signal(targets, signal.SIGTERM, Step.TERM)
            failpoint("worker.terminated")
            tree.signal_all(targets, signal.SIGCONT)  # a stopped process cannot act on TERM
            if cleaning_up:
                break
            told |= {(one.pid, one.start_ticks) for one in targets}
            living = tree.descendants(os.getpid())
            targets = [one for one in living if (one.pid, one.start_ticks) not in told]
            if not targets:
                break

    def _shells(self, targets: list[Stat]) -> list[Stat]:
        """Who is told of a closed terminal, as by the kernel, and ignores TERM: interactive shells.

        Not who heeds TERM: HUP would end it in the middle of its cleaning up.
        """
        told = [] if self._terminal_of is None else tree.at_terminal(targets, self._terminal_of)
        return [one for one in told if tree.ignores(one, signal.SIGTERM)]

    def _signal(self, targets: list[Stat], signo: signal.Signals, step: Step) -> None:
        reached = tree.signal_all(targets, signo)
        if reached:
            detail = {"signal": int(signo), "name": signo.name, "pids": reached, "step": step.value}
            self._recorder.record(Kind.PROGRAM_SIGNALLED, detail)
            self._recorder.flush()
