"""A terminal instead of pipes: what the program sees of it, what is kept of it, and how it ends."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from durable_supervisor import Command, RunState, Terminal
from durable_supervisor.model.errors import ErrorCode, SupervisorError
from durable_supervisor.model.events import Kind
from durable_supervisor.wire.documents import validate
from tests.contract.runs import Marker, Runs, appear, check_gapless, gone, sleeping
from tests.support import eventually, eventually_async

PTY = Terminal(columns=100, rows=30, term="vt100")
MIB = 1024 * 1024
LOOK = """
import json, os
print(json.dumps({
    "tty": [os.isatty(fd) for fd in (0, 1, 2)],
    "size": os.get_terminal_size(0),
    "term": os.environ["TERM"],
    "open": sorted(int(name) for name in os.listdir("/proc/self/fd")),
    "ids": [os.getpid(), os.getsid(0), os.tcgetpgrp(0)],
    "name": os.ttyname(0),
    "controls": os.ttyname(os.open("/dev/tty", os.O_RDWR)),
    "worker": os.getsid(os.getppid()),
}))
"""


async def refusal(runs: Runs, run_id: str, columns: int = 80, rows: int = 24) -> ErrorCode:
    with pytest.raises(SupervisorError) as caught:
        await runs.sup.resize(run_id, columns, rows)
    return caught.value.code


async def test_the_program_leads_a_session_that_the_terminal_controls(runs: Runs) -> None:
    run = await runs.python(LOOK, pty=PTY)
    assert (await runs.receipt(run))["outcome"]["code"] == 0
    seen = json.loads(await runs.output(run))
    assert seen["tty"] == [True, True, True]
    assert seen["size"] == [100, 30]
    assert seen["term"] == "vt100"
    assert len(set(seen["ids"])) == 1
    assert seen["worker"] not in seen["ids"]
    assert seen["controls"] == "/dev/tty"
    assert seen["name"].startswith("/dev/pts/")
    assert seen["open"] == [0, 1, 2, 3]  # 3 is the listing itself


async def test_many_at_once_have_each_their_own(runs: Runs) -> None:
    started = [await runs.sh("stty -echo; tty; cat", pty=PTY) for _ in range(5)]
    for run in started:
        await runs.printed(run, b"/dev/pts/")
    assert len({await runs.output(run) for run in started}) == 5
    for run in started:
        await runs.sup.write_stdin(run.id, b"", eof=True)
        assert (await runs.receipt(run))["outcome"]["code"] == 0


async def test_all_that_it_prints_is_stdout_in_its_order(runs: Runs) -> None:
    run = await runs.sh("echo one; echo two >&2; echo three > /dev/tty", pty=PTY)
    receipt = await runs.receipt(run)
    assert await runs.output(run) == b"one\r\ntwo\r\nthree\r\n"
    assert receipt["output"] == {"stdout": {"bytes": 17, "dropped": 0, "complete": True}}


async def test_inspect_and_the_events_say_which_terminal(runs: Runs) -> None:
    run, piped = await runs.sh(":", pty=PTY), await runs.sh(":")
    seen, other = await runs.wait(run), await runs.wait(piped)
    validate("inspect", seen.to_dict())
    assert (seen.pty, seen.stdin) == ({"columns": 100, "rows": 30, "term": "vt100"}, "null")
    assert other.pty is None
    dispatched = await runs.event(run, Kind.RUN_DISPATCHED)
    validate("event", dispatched.to_dict())
    assert dispatched.detail["pty"] == seen.pty
    assert "pty" not in (await runs.event(piped, Kind.RUN_DISPATCHED)).detail


async def test_an_explicit_variable_wins_over_the_terminals_kind(runs: Runs) -> None:
    run = await runs.sh("echo $TERM", pty=PTY, env={"TERM": "dumb"})
    await runs.wait(run)
    assert await runs.output(run) == b"dumb\r\n"


async def test_the_same_request_id_with_another_terminal_conflicts(runs: Runs) -> None:
    await runs.sup.start(Command(argv=["true"], pty=PTY), request_id="once")
    assert (await runs.sup.start(Command(argv=["true"], pty=PTY), request_id="once")).admission == "existing"
    for other in (None, Terminal(columns=101, rows=30, term="vt100")):
        with pytest.raises(SupervisorError) as caught:
            await runs.sup.start(Command(argv=["true"], pty=other), request_id="once")
        assert caught.value.code is ErrorCode.IDEMPOTENCY_CONFLICT
        assert caught.value.details["fields"] == ["pty"]


# --- input


async def test_what_is_typed_is_echoed_read_and_ended(runs: Runs) -> None:
    run = await runs.start(["cat"], pty=PTY)
    written = await runs.sup.write_stdin(run.id, b"hello\n")
    assert (written.result, written.detail["bytes"]) == ("written", 6)
    await runs.printed(run, b"hello\r\nhello\r\n")
    ended = await runs.sup.write_stdin(run.id, b"", eof=True)
    assert ended.result == "eof_sent"
    receipt = await runs.receipt(run)
    assert receipt["outcome"]["code"] == 0
    assert receipt["stdin_bytes"] == 6


async def test_an_end_of_file_in_the_middle_of_a_line_is_one(runs: Runs) -> None:
    run = await runs.sh("stty -echo; echo ready; cat; echo .", pty=PTY)
    await runs.printed(run, b"ready")
    await runs.sup.write_stdin(run.id, b"half a", eof=True)
    await runs.wait(run)
    assert await runs.output(run) == b"ready\r\nhalf a.\r\n"


async def test_a_terminal_is_open_after_an_end_of_file(runs: Runs) -> None:
    run = await runs.sh("stty -echo; echo ready; cat; echo next; cat", pty=PTY)
    await runs.printed(run, b"ready")
    await runs.sup.write_stdin(run.id, b"one\n", eof=True)
    await runs.printed(run, b"next")
    await runs.sup.write_stdin(run.id, b"two\n", eof=True)
    await runs.wait(run)
    assert await runs.output(run) == b"ready\r\none\r\nnext\r\ntwo\r\n"


@pytest.mark.parametrize("given", [b"", b"one\ntwo\n", b"one\ntwo"])
async def test_given_bytes_are_typed_and_ended(runs: Runs, given: bytes) -> None:
    run = await runs.start(["wc", "-c"], pty=PTY, stdin=given)
    receipt = await runs.receipt(run)
    assert (await runs.output(run)).endswith(b"%d\r\n" % len(given))
    assert receipt["stdin_bytes"] == len(given)


async def test_a_prompt_is_answered(runs: Runs) -> None:
    run = await runs.python("print('hello', input('name? '))", pty=PTY)
    await runs.printed(run, b"name? ")
    await runs.sup.write_stdin(run.id, b"Ada\n")
    await runs.wait(run)
    assert await runs.output(run) == b"name? Ada\r\nhello Ada\r\n"


async def test_an_interrupt_reaches_the_foreground_job_alone(runs: Runs, marker: Marker) -> None:
    script = f"set -m; sleep {marker} & trap 'echo shell' INT; echo ready; sleep {marker}; jobs; exit 7"
    run = await runs.sh(script, pty=PTY)
    eventually(lambda: sleeping(marker) == 2)  # the second one has the foreground then, and no handler
    await runs.sup.write_stdin(run.id, b"\x03")
    receipt = await runs.receipt(run)
    assert b"Running" in await runs.output(run)
    assert receipt["outcome"] == {"kind": "exited", "code": 7, "signal": None}
    gone(marker)


async def test_input_for_a_program_that_reads_slowly_arrives_whole(runs: Runs) -> None:
    data = bytes(range(256)) * (2 * MIB // 256)
    run = await runs.sh(f"stty raw -echo; echo ready; sleep .2; head -c {len(data)} | sha256sum", pty=PTY)
    await runs.printed(run, b"ready")
    await runs.sup.write_stdin(run.id, data)
    receipt = await runs.receipt(run)
    assert hashlib.sha256(data).hexdigest().encode() in await runs.output(run)
    assert receipt["stdin_bytes"] == len(data)


async def test_a_program_that_does_not_read_holds_up_its_writer_only(runs: Runs, marker: Marker) -> None:
    run = await runs.sh(f"stty raw -echo; echo ready; sleep {marker}; :", pty=PTY)
    await runs.printed(run, b"ready")
    writing = [asyncio.create_task(runs.sup.write_stdin(run.id, b"w" * MIB)) for _ in range(20)]

    async def told() -> list[str]:
        """16 MiB may wait; what is more is refused at once."""
        applied = await runs.events(run, kinds={Kind.CONTROL_APPLIED})
        return [str(one.detail["result"]) for one in applied if one.detail["op"] == "stdin"]

    await eventually_async(told)
    assert set(await told()) == {"busy"}
    assert (await runs.sup.signal(run.id, signal.SIGCONT)).result == "delivered"
    assert (await runs.sup.stop(run.id)).confirmed
    gone(marker)
    for outcome in await asyncio.gather(*writing, return_exceptions=True):
        assert isinstance(outcome, SupervisorError)
        assert outcome.code in (ErrorCode.BUSY, ErrorCode.STDIN_CLOSED, ErrorCode.NOT_RUNNING)


# --- size


async def test_a_resize_is_heard_by_the_program(runs: Runs) -> None:
    run = await runs.sh("trap 'stty size; exit' WINCH; echo ready; while :; do sleep .02; done", pty=PTY)
    await runs.printed(run, b"ready")
    receipt = await runs.sup.resize(run.id, 132, 50)
    assert (receipt.op, receipt.result) == ("resize", "resized")
    assert receipt.detail == {"columns": 132, "rows": 50}
    validate("control", {"schema": "durable-supervisor/control/1", **receipt.to_dict()})
    await runs.wait(run)
    assert await runs.output(run) == b"ready\r\n50 132\r\n"
    controls = await runs.events(run, kinds={Kind.CONTROL_RECEIVED, Kind.CONTROL_APPLIED})
    assert [one.detail["columns"] for one in controls] == [132, 132]
    assert await refusal(runs, run.id) is ErrorCode.NOT_RUNNING


async def test_what_cannot_be_resized_is_refused(runs: Runs, marker: Marker) -> None:
    for stdin in (None, "open"):
        piped = await runs.sh(f"sleep {marker}", stdin=stdin)
        assert await refusal(runs, piped.id) is ErrorCode.INVALID_REQUEST
    for columns, rows in ((0, 24), (80, -1), (80, 10_001), (True, 24)):
        assert await refusal(runs, piped.id, columns, rows) is ErrorCode.INVALID_REQUEST


# --- output


async def test_much_output_is_all_there(runs: Runs) -> None:
    run = await runs.start(["seq", "700000"], pty=PTY)
    receipt = await runs.receipt(run)
    expected = b"".join(b"%d\r\n" % number for number in range(1, 700_001))
    assert receipt["output"]["stdout"] == {"bytes": len(expected), "dropped": 0, "complete": True}
    assert await runs.output(run) == expected
    check_gapless(await runs.events(run))


async def test_no_event_ends_inside_a_character(runs: Runs) -> None:
    run = await runs.python("print('é€😀' * 20_000)", pty=PTY, env={"PYTHONIOENCODING": "utf-8"})
    await runs.wait(run)
    texts = [one.data.decode("utf-8") for one in await runs.events(run) if one.kind == Kind.OUTPUT]
    assert "".join(texts) == "é€😀" * 20_000 + "\r\n"
    assert len(texts) > 10


async def test_secrets_are_redacted_also_as_a_terminal_prints_them(runs: Runs) -> None:
    secrets = {"ONE": "correct-horse-battery", "LINES": "first-line-of-it\nsecond-line-of-it"}
    run = await runs.sh('printf "<%s>" "$ONE" "$LINES"; read typed', pty=PTY, secret_env=secrets)
    await runs.printed(run, b"<[redacted]><[redacted]>")
    await runs.sup.write_stdin(run.id, b"correct-horse-battery\n")  # the terminal echoes it
    await runs.wait(run)
    assert await runs.output(run) == b"<[redacted]><[redacted]>[redacted]\r\n"
    stored = runs.log_bytes()
    assert not any(text in stored for text in (b"correct-horse", b"first-line", b"second-line"))


async def test_too_much_output_stops_it(runs: Runs, marker: Marker) -> None:
    run = await runs.sh(f"yes; : {marker}", pty=PTY, max_stdout_bytes=100_000, on_limit="terminate")
    receipt = await runs.receipt(run)
    assert receipt["outcome"]["kind"] == "stdout_limit_exceeded"
    gone(marker)


# --- where there is none


HOST = """
import asyncio, json, sys
from durable_supervisor import Command, Supervisor, Terminal

async def main():
    async with Supervisor.open(sys.argv[1]) as sup:
        run = await sup.start(Command(argv=["true"], pty=Terminal()))
        seen = await sup.inspect(run.id)
        page = await sup.events(run.id, kinds={"program.exec_failed"})
        print(json.dumps([seen.state, seen.reason, seen.retryable, page.events[0].detail]))

asyncio.run(main())
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs a /dev/pts of its own")
def test_without_a_terminal_to_be_had_the_program_never_runs(state_dir: Path) -> None:
    hidden = 'mount -t tmpfs none /dev/pts && exec "$@"'
    command = ["unshare", "--mount", "sh", "-c", hidden, "sh", sys.executable, "-c", HOST, str(state_dir)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    state, reason, retryable, detail = json.loads(done.stdout)
    assert (state, retryable) == ("not_started", True)
    assert detail["step"] == "terminal"
    assert detail["path"] == "/dev/ptmx"
    assert reason == detail["error"]


# --- the end


async def test_a_program_may_let_go_of_its_terminal_and_come_back_to_it(runs: Runs) -> None:
    """As one does whose output goes elsewhere, and which asks for a password all the same."""
    script = (
        "echo bye; exec </dev/null >/dev/null 2>&1; printf 'password: ' > /dev/tty; read word < /dev/tty; "
        "head -c 200000 /dev/zero | tr '\\0' x > /dev/tty; exit 4"
    )
    run = await runs.sh(script, pty=PTY)
    await runs.printed(run, b"password: ")
    assert (await runs.sup.write_stdin(run.id, b"word\n")).result == "written"
    receipt = await runs.receipt(run)
    assert receipt["outcome"]["code"] == 4
    assert receipt["output"]["stdout"]["complete"]
    assert await runs.output(run) == b"bye\r\npassword: word\r\n" + b"x" * 200_000


async def test_a_child_that_keeps_the_terminal_does_not_hold_up_the_end(runs: Runs, marker: Marker) -> None:
    run = await runs.sh(f"trap '' HUP; sleep {marker} & seq 1500; exit 3", pty=PTY)
    receipt = await runs.receipt(run)
    assert receipt["outcome"] == {"kind": "exited", "code": 3, "signal": None}
    assert receipt["cleanup_confirmed"]
    assert await runs.output(run) == b"".join(b"%d\r\n" % number for number in range(1, 1501))
    gone(marker)


async def test_a_tree_on_a_terminal_ends_by_itself(runs: Runs, tmp_path: Path) -> None:
    """The leader's end takes the terminal away, not what ignores that."""
    script = f"trap '' HUP; (sleep .3; echo done > {tmp_path}/late) & exit 0"
    run = await runs.sh(script, pty=PTY, completion="tree")
    receipt = await runs.receipt(run)
    assert receipt["outcome"]["code"] == 0
    assert receipt["stop"] is None
    assert (tmp_path / "late").read_text() == "done\n"


async def test_a_stop_ends_all_jobs_also_those_that_ignore_it(runs: Runs, marker: Marker) -> None:
    script = f"set -m; trap '' TERM HUP INT; sleep {marker} & sleep {marker} & sleep {marker}"
    run = await runs.sh(script, pty=PTY, grace=0.3)
    appear(marker, 4)
    stop = await runs.sup.stop(run.id)
    assert stop.confirmed
    gone(marker)
    assert (await runs.receipt(run))["stop"]["escalated"]


async def test_a_killed_worker_takes_the_terminal_away(runs: Runs, tmp_path: Path, marker: Marker) -> None:
    """Its program hears of it as of any terminal that is gone, and nobody invents how it ended."""
    script = (
        f"trap 'echo hup > {tmp_path}/heard; exit' HUP; echo ready; while :; do sleep .02; done; : {marker}"
    )
    run = await runs.sh(script, pty=PTY)
    await runs.printed(run, b"ready")
    os.kill((await runs.worker(run.id)).pid, signal.SIGKILL)
    eventually(lambda: (tmp_path / "heard").exists() and (tmp_path / "heard").read_text() == "hup\n")

    async def judged() -> bool:
        await runs.sup.reconcile()
        return (await runs.sup.inspect(run.id)).state is RunState.UNKNOWN

    await eventually_async(judged)
    assert await runs.output(run) == b"ready\r\n"
    gone(marker)


async def test_what_ignores_that_is_quarantined_while_it_lives(runs: Runs, marker: Marker) -> None:
    run = await runs.sh(f"trap '' HUP; echo ready; sleep {marker}; echo late; :", pty=PTY)
    await runs.printed(run, b"ready")
    appear(marker, 2)
    os.kill((await runs.worker(run.id)).pid, signal.SIGKILL)

    async def quarantined() -> bool:
        return (await runs.sup.inspect(run.id)).state is RunState.QUARANTINED

    await eventually_async(quarantined)
    assert (await runs.sup.resolve(run.id, "kill")).state is RunState.UNKNOWN
    eventually(lambda: marker.alive() == [])
