"""A released program: capture it, stop it when due, and write its receipt."""

from __future__ import annotations

import os
import signal
import time

from ..model.enforcement import unconfined
from ..model.events import Kind
from ..process import tree
from ..process.clock import Clock
from ..process.failpoints import failpoint
from ..process.program import ConfinementRefused, StartFailure, Stdio
from ..process.signals import ignore, note, reset
from ..process.usage import Usage
from .capture import Capture
from .controls import size_of
from .deadlines import Deadlines
from .desk import Desk
from .effects import Effects
from .ending import errno_name, make_receipt, outcome_of
from .lifetime import HOST_GONE, HostWatch
from .poller import READ
from .redact import OutputFilter
from .resting import Resting
from .spec import STDIN_BYTES, STDIN_NULL, Spec
from .stdin import StdinFeed
from .stopping import LEFTOVER, Stopper
from .width import WIDE

REFUSED = "ENFORCEMENT_REFUSED"  # as a reason: the error code of that name
TYPE_CHECKING = False
if TYPE_CHECKING:  # as in `typing`, which a worker does not load
    from .resources import Resources

DRAIN_SECONDS = 0.5  # how long a pipe held open by others may delay the end
OUT_OF_MEMORY = "out_of_memory"  # as a reason: of a stop
_SHORT_SECONDS = 0.01  # a run that is over by then makes no socket file, and hardly ever reserves blocks
_LAST_READ = 8 * 1024 * 1024
_ROOMY = 32 * WIDE  # of a flood with a smaller cap little is kept: it is not worth the room of a wide pipe


class Tending:
    """One attempt from the gate to the receipt."""

    def __init__(self, spec: Spec, desk: Desk, clock: Clock) -> None:
        self.spec = spec
        self.leader = 0
        self.executable: dict[str, object] | None = None  # requested and canonical
        self.enforcement: dict[str, dict[str, object]] = unconfined()
        self.resources: Resources | None = None  # the groups of the tree, where the plan has any
        self._breach: str | None = None  # what the tree had exceeded by the end of the run
        self.exit: tuple[int | None, int | None] | None = None  # exit code or signal, as waitid says
        self.stdin: StdinFeed | None = None
        self._clock = clock
        self._desk = desk
        self._poller = desk.poller
        self._captures: list[Capture] = []
        self._released = (0, 0)  # wall and elapsed nanoseconds
        self._drain_until = 0.0
        self._wake = (-1, -1)  # where signals are noted
        self._finished = False
        self.confirmed = False  # nothing of the tree was left
        self._usage = Usage()
        self.recorder = desk.recorder
        self.host = HostWatch.of(spec.host, desk.poller)
        self._stopper = Stopper(
            self.recorder, self._poller, after_step=self._look_at_children, give_up=self._give_up
        )
        self._deadlines = Deadlines(self._poller, self._last_output, self._due)
        self._socket = desk.socket
        self._resting = Resting(desk.poller, model=spec.model)
        desk.controls.appliers = Effects(self).table()
        desk.controls.acknowledged = self._acknowledged

    # Before the release.

    def prepare(self) -> Stdio:
        """The program's ends of its stdio.  Every descriptor that tending it takes is had from here on.

        Raises OSError: once it is released, a lack of descriptors must not leave it alone; and
        StartFailure where there is no terminal to be had.
        """
        spec = self.spec
        self._wake = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._deadlines.prepare(spec.timeout)
        secrets = [value.encode("utf-8", "surrogateescape") for value in spec.secrets]
        return self._pipes(secrets) if spec.pty is None else self._terminal(spec.pty, secrets)

    def _pipes(self, secrets: list[bytes]) -> Stdio:
        theirs = {}
        for stream, cap in (("stdout", self.spec.max_stdout_bytes), ("stderr", self.spec.max_stderr_bytes)):
            ours, theirs[stream] = os.pipe2(os.O_CLOEXEC)
            self._capture(stream, ours, cap, secrets)
        if self.spec.stdin == STDIN_NULL:
            stdin = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        else:
            stdin, feeder = os.pipe2(os.O_CLOEXEC)
            self.stdin = StdinFeed(feeder, self._poller)
        return Stdio(stdin, theirs["stdout"], theirs["stderr"])

    def _terminal(self, pty: dict[str, object], secrets: list[bytes]) -> Stdio:
        from .terminal import TerminalFeed, as_printed, open_terminal  # most runs have none

        master, slave = open_terminal(*size_of(pty))
        self.stdin = TerminalFeed(master, slave, self._poller)
        self._capture("stdout", master, self.spec.max_stdout_bytes, as_printed(secrets))
        return Stdio(slave, slave, slave, terminal=True)

    def _capture(self, stream: str, fd: int, cap: int, secrets: list[bytes]) -> None:
        bound = cap if self.spec.on_limit == "terminate" else None
        filtered = OutputFilter(secrets, tokens=self.spec.redact_tokens)
        self._captures.append(
            Capture(
                stream, fd, filtered, self.recorder,
                terminate_at=bound, window=self.spec.window, may_widen=cap >= _ROOMY,
                awaited=(lambda: self._socket.awaited) if self.spec.pty is None else None,
            )
        )  # fmt: skip

    def refuse_without_host(self) -> None:
        """Nobody is left to end the run with: it never begins."""
        self._not_started({"reason": HOST_GONE, "retryable": True})

    def refuse(self, failure: StartFailure) -> None:
        """User code never ran: say why, durably, and tell the supervisor."""
        if isinstance(failure, ConfinementRefused):
            why = self.spec.shown(failure.reason)
            self._not_started({"reason": REFUSED, "axis": failure.axis, "detail": why})
            return
        detail: dict[str, object] = {
            "errno": failure.code,
            "error": errno_name(failure.code),
            "step": failure.step,
            "path": self.spec.shown(failure.path),
        }
        self.recorder.record(Kind.PROGRAM_EXEC_FAILED, detail)
        self._not_started({"reason": detail["error"], **detail})

    def _not_started(self, detail: dict[str, object]) -> None:
        if self.resources is not None:
            self.resources.remove()
        self.recorder.finish(Kind.RUN_NOT_STARTED, detail)
        failpoint("worker.refused")
        self._desk.say("not_started")

    # After it.

    def began(self, leader: int) -> None:
        """The program runs: watch it, feed it, and start its clocks."""
        self.leader = leader
        self._released = (self._clock.wall_ns(), self._clock.elapsed_ns())
        self._desk.say("released")
        self.recorder.captures = self._captures
        for capture in self._captures:
            capture.start(self._poller)
        if self.stdin is not None and self.spec.stdin == STDIN_BYTES:
            feed, self.spec.stdin_bytes = self.spec.stdin_bytes, b""
            self.stdin.write(feed, lambda *_: None)
            self.stdin.end(lambda *_: None)
        self._deadlines.arm(self.spec.timeout, self.spec.idle_timeout)
        if self.resources is not None:
            self._stopper.kill_all = self.resources.kill
            self.resources.watch(self._poller, self._due)
        if self.host is not None:
            self.host.watch(lambda: self._due(HOST_GONE))
        self._poller.at("lasts", time.monotonic() + _SHORT_SECONDS, self._desk.settle_in)
        if self._leader_status() is not None:  # it had ended before its signals were watched
            self._poller.at("again", time.monotonic(), self._look_at_children)

    def until_finished(self) -> None:
        """Serve the run until its receipt is durable."""
        while not self._finished:
            self._desk.serve(self._serve_once, self._look_at_children)

    @property
    def seconds(self) -> float:
        """Since this run's beginning, on CLOCK_MONOTONIC."""
        return self._clock.elapsed_ns() / 1e9

    def part(self, word: str) -> bool:
        """See `Desk.part`."""
        return self._desk.part(word, self.spec.run_id)

    def close(self) -> None:
        """Let go of the lock, and of everything else but the channel."""
        self.recorder.log.close()  # first, so that who hears the channel end finds the lock free
        self._forget_signals()
        self._deadlines.close()
        if self.host is not None:
            self.host.close()
        self.recorder.close()
        self._desk.close()

    def _serve_once(self) -> None:
        self._poller.turn()
        self._resting.turned()
        self.recorder.flush()
        if self._over or self._stopper.active:
            self._open_windows()
        for capture in self._captures:
            if capture.held:
                capture.read_on()  # the disk, for one, may have turned out to be full
            if capture.exceeded and not self._stopper.active:
                self._due(f"{capture.stream}_limit")
        if self.exit is not None and not self._finished:
            self._advance()

    def begin_stop(self, reason: str, grace: float, control_id: str | None = None) -> str:
        """Start or hasten the ladder; see `Stopper.begin` for the answer."""
        if not self._finished and not self._stopper.active:
            self._look_at_children()  # an end that came before the stop is not the stop's doing
        if self._finished:
            return "already_ended"
        terminal_of = None if self.spec.pty is None else self.leader
        return self._stopper.begin(
            reason, grace, over=self._over, control_id=control_id, terminal_of=terminal_of
        )

    @property
    def _over(self) -> bool:
        """Has the run ended by itself?  What follows can no longer change its outcome."""
        return self.exit is not None and self.spec.completion == "leader"

    # What happens meanwhile.

    def watch_signals(self) -> None:
        """From before the release on: none that the program or anyone sends then is lost."""
        wake_read, wake_write = self._wake
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        note([signal.SIGCHLD, signal.SIGTERM, signal.SIGUSR1])
        self._poller.watch(wake_read, READ, lambda _: self._on_signals(os.read(wake_read, 512)))

    def _forget_signals(self) -> None:
        """As a worker has them that waits for a run."""
        signal.set_wakeup_fd(-1)
        ignore([signal.SIGTERM, signal.SIGUSR1])
        reset([signal.SIGCHLD])
        for fd in self._wake:
            os.close(fd)

    def _on_signals(self, received: bytes) -> None:
        if signal.SIGTERM in received and not self._over:
            self.begin_stop("worker_terminated", self.spec.grace)
        if signal.SIGUSR1 in received:
            self._socket.ensure()
        self._look_at_children()

    def _due(self, reason: str) -> None:
        if self._finished:
            return
        self._look_at_children()
        if not self._over:
            self.begin_stop(reason, self._grace_for(reason))

    def _grace_for(self, reason: str | None) -> float:
        """Who has seen one of its own killed for want of memory is not waited for: it may want more."""
        return 0.0 if reason == OUT_OF_MEMORY else self.spec.grace

    def _acknowledged(self, stdout: int, stderr: int) -> None:
        for capture in self._captures:
            capture.acknowledge(stdout if capture.stream == "stdout" else stderr)

    def _open_windows(self) -> None:
        """What ends is not held up by anybody who does not read."""
        if self.spec.window is None:
            return
        for capture in self._captures:
            capture.open_window()

    def _last_output(self) -> float:
        return max(capture.active_at for capture in self._captures)

    def _look_at_children(self) -> None:
        """Note the leader's exit without reaping it, which pins its pid; reap everyone else."""
        status = None if self.exit is not None else self._leader_status()
        if status is None:
            tree.reap_others(self.leader, self._usage)
        else:  # `_advance` reaps, in this very turn
            self._leader_exited(status.si_code == os.CLD_EXITED, status.si_status)

    def _leader_status(self) -> os.waitid_result | None:
        return os.waitid(os.P_PID, self.leader, os.WEXITED | os.WNOHANG | os.WNOWAIT)

    def _leader_exited(self, by_itself: bool, status: int) -> None:
        self.exit = (status, None) if by_itself else (None, status)
        self._drain_until = time.monotonic() + DRAIN_SECONDS
        self._poller.cancel("again")  # where its signal came as well
        failpoint("worker.before_exited")
        self.recorder.record(Kind.PROGRAM_EXITED, {"code": self.exit[0], "signal": self.exit[1]})
        self.recorder.flush()
        failpoint("worker.exited")
        if self.resources is not None and self._over:
            self._breach = self.resources.breach()
        # A terminal goes with the leader, whose session it controls: nobody else can read from it.
        if self.stdin is not None and (self._over or self.spec.pty is not None):
            self.stdin.abandon()

    def _advance(self) -> None:
        """The leader has exited: is the tree gone, is the output complete, what is due?"""
        if not self._read_captures() and time.monotonic() < self._drain_until:
            self._poller.at("drain", self._drain_until, lambda: None)
            return
        alone = tree.reap_others(self.leader, self._usage)
        if alone and self._groups_are_empty():
            self._finish([])
        elif not self._stopper.active and self.spec.completion == "leader":
            self.begin_stop(LEFTOVER, self._grace_for(self._breach))

    def _read_captures(self) -> bool:
        """All that has been written.  True where nobody can write any more."""
        still_open = [capture for capture in self._captures if capture.open]
        for capture in still_open:
            capture.read_all(self._poller, _LAST_READ)
        return not any(capture.open for capture in still_open)

    def _groups_are_empty(self) -> bool:
        return self.resources is None or self.resources.empty()

    # The end.

    def _give_up(self, survivors: list[dict[str, object]]) -> None:
        """The ladder's bound has passed.  Without an exit status there is nothing to state yet."""
        if self.exit is not None and not self._finished:
            self._finish(survivors)

    def _finish(self, survivors: list[dict[str, object]]) -> None:
        """Nothing is left (or what is left has a name): the receipt, durable."""
        assert self.exit is not None
        self._finished = True
        self._stopper.end()
        if self.stdin is not None:
            self.stdin.abandon()
        output = self._close_output()
        self._usage.add(os.wait4(self.leader, 0)[2])
        failpoint("worker.reaped")
        self.confirmed = not survivors and tree.is_gone() and self._groups_are_empty()
        if self.resources is not None:
            self._account(self.resources)
        stop = self._stopper.summary()
        wall, elapsed = self._clock.wall_ns(), self._clock.elapsed_ns()
        receipt = make_receipt(
            attempt=self.spec.attempt,
            outcome=outcome_of(str(stop["reason"]) if stop else self._exceeded(), *self.exit),
            usage=self._usage,
            started_ns=self._released[0],
            finished_ns=wall,
            duration_ns=elapsed - self._released[1],
            output=output,
            stdin_bytes=self.stdin.written if self.stdin is not None else 0,
            survivors=survivors,
            stop=stop,
            cleanup_confirmed=self.confirmed,
            run_id=self.spec.run_id,
            executable=self.executable,
            enforcement=self.enforcement,
        )
        failpoint("worker.before_receipt")
        self.recorder.finish(Kind.RUN_FINISHED, receipt)
        failpoint("worker.receipt")
        self._desk.hang_up()  # first: who hears of the end has no socket to clear away
        self._desk.say("finished")
        failpoint("worker.finished")

    def _exceeded(self) -> str | None:
        """A program that used too much and left before it could be stopped has exceeded all the same."""
        written = (f"{capture.stream}_limit" for capture in self._captures if capture.exceeded)
        return next(written, self._breach)

    def _account(self, resources: Resources) -> None:
        """The kernel's last word on what was used; nothing is left that could use more."""
        if not self._over:
            self._breach = resources.breach()
        if self.enforcement["memory"]["requested"] is not None:
            self.enforcement["memory"]["oom_kills"] = resources.oom_kills()
        resources.remove()

    def _close_output(self) -> dict[str, object]:
        """Totals of each stream; ``complete`` is false when its pipe never reported end-of-file."""
        self._open_windows()
        self._read_captures()  # the last of the tree may have written since
        complete = {}
        for capture in self._captures:
            complete[capture.stream] = not capture.open
            capture.close(self._poller)
        log = self.recorder.log
        log.settle()
        return {
            capture.stream: {
                "bytes": capture.seen,
                "dropped": log.dropped(capture.stream),
                "complete": complete[capture.stream],
            }
            for capture in self._captures
        }
