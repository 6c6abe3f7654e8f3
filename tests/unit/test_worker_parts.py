"""The worker's pure parts: ladder, outcome, environment, controls' values, and its little loop."""

from __future__ import annotations

import os
import select
import signal
import time
from typing import Any, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from durable_supervisor.model.command import MAX_SECONDS, Command
from durable_supervisor.model.enforcement import unconfined
from durable_supervisor.model.environment import BASE_NAMES, DEFAULT_PATH, program_environment
from durable_supervisor.model.outcome import STOP_OUTCOMES, OutcomeKind
from durable_supervisor.process.usage import Usage
from durable_supervisor.worker.controls import MAX_GRACE, grace_of, is_control_id, signal_name, signal_of
from durable_supervisor.worker.ending import errno_name, make_receipt, outcome_of
from durable_supervisor.worker.ladder import KILL_BOUND, Ladder, Step
from durable_supervisor.worker.main import _record_crash
from durable_supervisor.worker.poller import READ, WRITE, Poller
from durable_supervisor.worker.spec import Spec
from durable_supervisor.worker.stdin import StdinFeed

# The ladder.


def descend(ladder: Ladder, now: float, until: float) -> list[tuple[float, Step]]:
    """Ask whenever it wants to be asked; all steps with their times."""
    steps = []
    while now <= until:
        step, again = ladder.step(now)
        steps.append((round(now, 3), step))
        assert again > 0
        now += again
    return steps


def test_term_then_the_grace_then_kill_rounds_then_the_bound() -> None:
    steps = descend(Ladder(5, 100), 100, 100 + 5 + KILL_BOUND + 1)
    assert steps[0] == (100, Step.TERM)
    assert steps[1] == (105, Step.KILL)
    kills = [now for now, step in steps if step is Step.KILL]
    assert all(105 <= now < 105 + KILL_BOUND for now in kills)
    assert kills[1] - kills[0] < 0.1  # quick at first
    assert steps[-1][1] is Step.GIVE_UP
    assert steps[-1][0] >= 105 + KILL_BOUND


@pytest.mark.parametrize(
    ("grace", "expected"),
    [
        (5, [(0, Step.TERM), (0.05, Step.HANG_UP), (5, Step.KILL)]),
        (0.01, [(0, Step.TERM), (0.01, Step.KILL)]),
        (0, [(0, Step.KILL)]),
    ],
)
def test_a_terminal_is_hung_up_where_there_is_time_for_it(
    grace: float, expected: list[tuple[float, Step]]
) -> None:
    assert descend(Ladder(grace, 0, terminal=True), 0, grace) == expected


@pytest.mark.parametrize("terminal", [True, False])
def test_no_grace_means_no_term(terminal: bool) -> None:
    ladder = Ladder(0, 7, terminal=terminal)
    assert ladder.step(7)[0] is Step.KILL
    assert ladder.escalated


def test_asked_too_early_it_waits() -> None:
    ladder = Ladder(5, 0)
    ladder.step(0)
    step, again = ladder.step(1)
    assert (step, again) == (Step.WAIT, 4)
    assert not ladder.escalated


@pytest.mark.parametrize(
    ("grace", "now", "hastened"), [(1, 1, True), (0, 1, True), (4, 1, False), (60, 1, False)]
)
def test_a_later_stop_can_only_hasten(grace: float, now: float, hastened: bool) -> None:
    ladder = Ladder(5, 0)
    ladder.step(0)
    assert ladder.hasten(grace, now) is hastened
    assert ladder.step(min(5, now + grace))[0] is Step.KILL


@settings(max_examples=200)
@given(
    grace=st.floats(0, 20),
    terminal=st.booleans(),
    asks=st.lists(st.tuples(st.floats(0, 3), st.none() | st.floats(0, 30)), max_size=30),
)
def test_whatever_is_asked_the_kill_comes_and_is_never_taken_back(
    grace: float, terminal: bool, asks: list[tuple[float, float | None]]
) -> None:
    ladder, now, kill_by = Ladder(grace, 0, terminal=terminal), 0.0, grace
    killed = False
    for pause, hastened in asks:
        now += pause
        if hastened is not None:
            ladder.hasten(hastened, now)
            kill_by = min(kill_by, now + hastened)
        step, again = ladder.step(now)
        assert again > 0
        assert (step in (Step.KILL, Step.GIVE_UP)) == (now >= kill_by)
        if step in (Step.TERM, Step.HANG_UP, Step.WAIT):
            assert not killed
            assert now + again <= kill_by + 1e-6
        killed = killed or step is Step.KILL
        assert ladder.escalated == (now >= kill_by)


# The outcome.


@pytest.mark.parametrize(("code", "signo"), [(0, None), (7, None), (None, 9)])
def test_the_reason_decides_the_kind_and_never_hides_the_status(code: int | None, signo: int | None) -> None:
    for reason, kind in STOP_OUTCOMES.items():
        outcome = outcome_of(reason, code, signo)
        assert (outcome.kind, outcome.code, outcome.signal) == (kind, code, signo)
    natural = OutcomeKind.EXITED if signo is None else OutcomeKind.SIGNALED
    for other in (None, "leftover"):
        assert outcome_of(other, code, signo).kind is natural


def test_a_receipt_states_all_it_knows() -> None:
    receipt = make_receipt(
        attempt=2,
        outcome=outcome_of("timeout", None, 9),
        usage=Usage(),
        started_ns=1_700_000_000_000_000_000,
        finished_ns=1_700_000_001_500_000_000,
        duration_ns=1_500_000_000,
        output={"stdout": {"bytes": 1, "dropped": 0, "complete": True}},
        stdin_bytes=3,
        survivors=[{"pid": 5}],
        stop={"reason": "timeout"},
        cleanup_confirmed=False,
        run_id="abc",
        executable={"requested": "ls", "canonical": "/usr/bin/ls"},
        enforcement=unconfined(),
    )
    assert receipt["outcome"] == {"kind": "timed_out", "code": None, "signal": 9}
    assert receipt["exit"] == {"code": None, "signal": 9}
    assert receipt["duration"] == 1.5
    assert receipt["started_at"] == "2023-11-14T22:13:20.000000Z"
    assert receipt["survivors"] == [{"pid": 5}]
    assert receipt["cleanup_confirmed"] is False
    assert receipt["run_id"] == "abc"
    assert receipt["executable"] == {"requested": "ls", "canonical": "/usr/bin/ls"}
    assert receipt["enforcement"] == unconfined()
    usage: Any = receipt["rusage"]
    assert set(usage) == {"user_seconds", "system_seconds", "max_rss_kib"}


def test_errno_names() -> None:
    assert errno_name(2) == "ENOENT"
    assert errno_name(9999) == "E9999"


# The environment.


def test_the_environment_has_an_order() -> None:
    host = {"PATH": "/host", "HOME": "/root", "LANG": "C", "OTHER": "x", "WANTED": "y", "A": "host"}
    command = Command(
        argv=["x"],
        inherit_env=["WANTED", "A", "ABSENT"],
        env={"A": "env", "B": "env"},
        secret_env={"C": "12345678"},
    )
    assert program_environment(command, host) == {
        "PATH": "/host", "HOME": "/root", "LANG": "C", "WANTED": "y", "A": "env", "B": "env", "C": "12345678",
    }  # fmt: skip


def test_an_empty_host_gives_a_path_alone() -> None:
    assert program_environment(Command(argv=["x"]), {}) == {"PATH": DEFAULT_PATH}
    assert program_environment(Command(argv=["x"], env={"PATH": ""}), {}) == {"PATH": ""}


def test_the_base_holds_nothing_that_could_be_secret() -> None:
    from durable_supervisor.model.secrets import is_secret_name

    assert not [name for name in BASE_NAMES if is_secret_name(name)]


# Values of controls.


@pytest.mark.parametrize(
    "grace", [-1, -0.1, float("nan"), float("inf"), True, None, "1", [1], MAX_GRACE * 2, 10**400]
)
def test_a_grace_that_is_none(grace: object) -> None:
    assert grace_of({"grace": grace}, 3.0) == 3.0


@pytest.mark.parametrize("grace", [0, 0.5, 86401, MAX_GRACE])
def test_a_grace(grace: float) -> None:
    assert grace_of({"grace": grace}, 3.0) == grace


def test_a_control_may_ask_for_what_a_run_may() -> None:
    assert MAX_GRACE == MAX_SECONDS


@pytest.mark.parametrize("signo", [0, -1, 65, True, None, "TERM", 15.0, [15], 10**30])
def test_no_signal(signo: object) -> None:
    assert signal_of({"signal": signo}) is None


def test_signals_and_their_names() -> None:
    assert signal_of({"signal": 15}) == signal.SIGTERM
    assert [signal_name(one) for one in (9, 34, 40)] == ["SIGKILL", "SIGRTMIN", "SIG40"]


@pytest.mark.parametrize("value", ["a", "ctl-0123", "with space", "x" * 128])
def test_control_ids(value: str) -> None:
    assert is_control_id(value)


@pytest.mark.parametrize("value", ["", "x" * 129, "a\n", "\0", "é", "\ud800", 1, None, ["a"]])
def test_no_control_ids(value: object) -> None:
    assert not is_control_id(value)


# The loop.


@pytest.fixture
def pipe() -> Any:
    ends = os.pipe()
    yield ends
    for fd in ends:
        try:
            os.close(fd)
        except OSError:
            continue


def test_readiness_is_served_until_forgotten(pipe: tuple[int, int]) -> None:
    poller, seen = Poller(), []
    poller.watch(pipe[0], READ, lambda events: seen.append(("read", os.read(pipe[0], 9))))
    os.write(pipe[1], b"a")
    poller.turn()
    assert seen == [("read", b"a")]
    poller.watch(pipe[1], WRITE, lambda events: seen.append(("write", b"")))
    poller.turn()
    assert seen[1:] == [("write", b"")]
    poller.forget(pipe[1])
    poller.forget(pipe[1])  # again is no harm
    poller.at("now", time.monotonic(), lambda: seen.append(("timer", b"")))
    poller.turn()
    assert seen[2:] == [("timer", b"")]


def test_one_callback_may_forget_another_of_the_same_turn() -> None:
    poller, pipes = Poller(), [os.pipe() for _ in range(2)]
    served = []

    def serve(mine: int, other: int) -> None:
        served.append(mine)
        poller.forget(pipes[other][0])

    for mine, other in ((0, 1), (1, 0)):
        os.write(pipes[mine][1], b"x")
        poller.watch(pipes[mine][0], READ, lambda _, mine=mine, other=other: serve(mine, other))  # type: ignore[misc]
    poller.turn()
    assert len(served) == 1
    for ends in pipes:
        for fd in ends:
            os.close(fd)


def test_timers_run_once_in_time_and_can_be_replaced() -> None:
    poller, seen = Poller(), []
    begin = time.monotonic()
    poller.at("replaced", begin, lambda: seen.append("never"))
    poller.at("replaced", begin + 0.02, lambda: seen.append("replaced"))
    poller.at("cancelled", begin, lambda: seen.append("never"))
    poller.cancel("cancelled")
    poller.cancel("cancelled")
    assert poller.armed("replaced")
    assert not poller.armed("cancelled")
    while not seen:
        poller.turn()
    assert time.monotonic() >= begin + 0.02
    assert seen == ["replaced"]
    assert not poller.armed("replaced")


def test_a_timer_may_arm_itself_again() -> None:
    poller, seen = Poller(), []

    def tick() -> None:
        seen.append(1)
        if len(seen) < 3:
            poller.at("tick", time.monotonic(), tick)

    poller.at("tick", time.monotonic(), tick)
    while len(seen) < 3:
        poller.turn()
    assert not poller.armed("tick")


def test_a_timer_months_away_is_no_error(pipe: tuple[int, int]) -> None:
    """epoll_wait(2) takes no more than 24 days at once; a silent program may have longer."""
    poller, seen = Poller(), []
    poller.at("idle", time.monotonic() + MAX_SECONDS, lambda: seen.append("never"))
    poller.watch(pipe[0], READ, lambda _: seen.append("ready"))
    os.write(pipe[1], b"x")
    poller.turn()
    assert seen == ["ready"]


def test_who_rests_does_so_once_before_the_wait_and_misses_nothing(pipe: tuple[int, int]) -> None:
    poller = Poller()
    seen: list[object] = []

    def rest(epoll: int, timeout: float) -> None:
        with select.epoll.fromfd(os.dup(epoll)) as same:
            seen.append((len(same.poll(timeout)), timeout))

    poller.watch(pipe[0], READ, lambda _: seen.append(os.read(pipe[0], 9)))
    poller.rest(rest)
    os.write(pipe[1], b"x")
    poller.turn()
    assert seen == [(1, -1.0), b"x"]
    poller.at("now", time.monotonic(), lambda: seen.append("timer"))
    poller.turn()
    assert seen[2:] == ["timer"]


def test_a_timer_that_is_set_at_rest_is_waited_for() -> None:
    poller, seen = Poller(), []
    poller.rest(lambda *_: poller.at("set", time.monotonic(), lambda: seen.append("set")))
    poller.turn()
    assert seen == ["set"]


# Its stdin.


def test_the_end_of_a_closed_stdin_leaves_alone_who_has_its_number_now(pipe: tuple[int, int]) -> None:
    poller, answers = Poller(), []
    reader, writer = os.pipe()
    feed = StdinFeed(writer, poller)
    os.close(reader)
    feed.write(b"x", lambda result, count: answers.append((result, count)))
    heir = os.dup(pipe[0])
    os.dup2(heir, writer)
    poller.watch(writer, READ, lambda _: answers.append(("heard", 0)))
    feed.end(lambda result, count: answers.append((result, count)))
    os.write(pipe[1], b"x")
    poller.at("too late", time.monotonic() + 5, lambda: None)
    poller.turn()
    for fd in {heir, writer}:
        os.close(fd)
    assert answers == [("closed", 0), ("closed", 0), ("heard", 0)]


# Its own failure.


def test_a_cut_crash_text_holds_no_piece_of_a_secret() -> None:
    """The cut goes through the secret: what is behind it would not be known as one any more."""
    secret = "s3cret-" * 600

    class Log:
        texts: ClassVar[list[str]] = []

        def append(self, kind: str, detail: dict[str, str]) -> None:
            self.texts.append(detail["text"])

        def flush(self) -> None:
            pass

    spec = Spec()
    spec.secrets = [secret]
    spec.redact_tokens = True
    _record_crash(Log(), spec, OSError(secret + "x" * 6000))  # type: ignore[arg-type]
    [text] = Log.texts
    assert text.endswith("[redacted]" + "x" * 6000 + "\n")
    assert "s3cret" not in text
