"""Output: every byte once, in order, whoever reads, whatever it is."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from durable_supervisor import SupervisorError
from durable_supervisor.model.events import Kind
from tests.contract.hosts import log_of
from tests.contract.runs import Marker, Runs, appear, check_gapless, gone
from tests.support import PATIENCE, eventually_async

EVERY_BYTE = bytes(range(256)) * 10
TERMINAL = b"\x1b[31mred\x1b[0m \x1b]0;title\x07 \x1b]52;c;aGk=\x1b\\ \r\n\x08\x9b5n"

# In packet mode (O_DIRECT, pipe(2)) a reader gets each write by itself: every one becomes an event.
PACKETS = """
import fcntl, os
for fd in (1, 2):
    fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_DIRECT)
"""


async def test_a_character_written_byte_by_byte_is_one_character(runs: Runs) -> None:
    run = await runs.sh(r"printf '\342'; sleep .1; printf '\202'; sleep .1; printf '\254'")
    receipt = await runs.receipt(run)
    shown = [one for one in await runs.events(run) if one.kind == Kind.OUTPUT]
    assert [one.text for one in shown] == ["€"]
    assert shown[0].to_dict()["text"] == "€"
    assert "base64" not in shown[0].to_dict()
    assert receipt["output"]["stdout"]["bytes"] == 3


async def test_a_character_that_never_comes_whole_is_kept_as_it_is(runs: Runs) -> None:
    run = await runs.sh(r"printf 'a\342\202'; sleep .1; printf 'b\360\237'")
    await runs.wait(run)
    assert await runs.output(run) == b"a\xe2\x82b\xf0\x9f"
    forms = [one.to_dict() for one in await runs.events(run) if one.kind == Kind.OUTPUT]
    assert b"".join(
        base64.b64decode(str(form["base64"])) if "base64" in form else str(form["text"]).encode()
        for form in forms
    ) == b"a\xe2\x82b\xf0\x9f"  # fmt: skip


async def test_two_thousand_lines_on_each_stream_at_any_page_size(runs: Runs) -> None:
    run = await runs.sh('i=0; while [ $i -lt 2000 ]; do i=$((i+1)); echo "out $i"; echo "err $i" >&2; done')
    await runs.wait(run)
    large = await runs.events(run, size=1000)
    assert await runs.events(run, size=7) == large
    check_gapless(large)
    for stream, word in (("stdout", "out"), ("stderr", "err")):
        assert (await runs.output(run, stream)).decode().split("\n")[:-1] == [
            f"{word} {number}" for number in range(1, 2001)
        ]
        offsets = [one.offset for one in large if one.kind == Kind.OUTPUT and one.stream == stream]
        assert offsets[0] == 0
        assert offsets == sorted(set(offsets))  # type: ignore[type-var]


async def test_filters_do_not_renumber(runs: Runs) -> None:
    run = await runs.sh("for i in 1 2 3; do echo $i; sleep .02; done")
    await runs.wait(run)
    everything = await runs.events(run)
    without = await runs.events(run, size=2, output=False)
    assert without == [one for one in everything if one.kind != Kind.OUTPUT]
    only = await runs.events(run, size=2, kinds={Kind.OUTPUT})
    assert only == [one for one in everything if one.kind == Kind.OUTPUT]


async def test_unread_output_never_blocks_the_program(runs: Runs) -> None:
    run = await runs.sh("head -c 300000 /dev/zero | tr '\\0' e >&2; echo alive")
    receipt = await runs.receipt(run)
    assert await runs.output(run) == b"alive\n"
    assert await runs.output(run, "stderr") == b"e" * 300_000
    assert receipt["output"]["stderr"] == {"bytes": 300_000, "dropped": 0, "complete": True}


@pytest.mark.parametrize("argv", [["echo", "x"], ["/nonexistent/program"]], ids=["finished", "not started"])
async def test_the_space_that_was_reserved_for_a_run_is_given_back(runs: Runs, argv: list[str]) -> None:
    run = await runs.start(argv)
    with contextlib.suppress(SupervisorError):
        await runs.wait(run)
    log = log_of(runs.state_dir, run.id)
    await eventually_async(lambda: log.stat().st_blocks * 512 <= 8192)


async def test_a_line_of_five_megabytes(runs: Runs) -> None:
    run = await runs.python("import sys; sys.stdout.write('x' * 5_000_000)")
    await runs.wait(run)
    assert await runs.output(run) == b"x" * 5_000_000
    check_gapless(await runs.events(run))


@pytest.mark.parametrize("data", [b"no newline", EVERY_BYTE, TERMINAL, b"\0", b"\n\n", b"\xff" * 70_000])
@pytest.mark.parametrize("stream", ["stdout", "stderr"])
async def test_bytes_are_stored_exactly(runs: Runs, data: bytes, stream: str) -> None:
    fd = {"stdout": 1, "stderr": 2}[stream]
    run = await runs.start(["sh", "-c", f"cat >&{fd}"], stdin=data)
    await runs.wait(run)
    assert await runs.output(run, stream) == data
    assert await runs.output(run, {"stdout": "stderr", "stderr": "stdout"}[stream]) == b""


async def test_what_is_still_in_the_pipe_at_the_exit_is_recorded(runs: Runs) -> None:
    script = """
import fcntl, os
fcntl.fcntl(1, 1031, 1 << 20)  # F_SETPIPE_SZ
os.write(1, b"z" * 200_000)
os._exit(9)
"""
    run = await runs.python(script)
    receipt = await runs.receipt(run)
    assert receipt["outcome"]["code"] == 9
    assert await runs.output(run) == b"z" * 200_000
    assert (await runs.events(run))[-1].kind == Kind.RUN_FINISHED


async def test_a_program_may_close_its_output_and_go_on(runs: Runs, marker: Marker) -> None:
    run = await runs.sh(f"echo before; exec 1>&- 2>&-; sleep {marker}")
    await runs.printed(run, b"before\n")
    appear(marker, 1)
    assert (await runs.sup.inspect(run.id)).state.value == "running"
    await runs.sup.stop(run.id)
    gone(marker)
    output = (await runs.receipt(run))["output"]
    assert output["stdout"] == {"bytes": 7, "dropped": 0, "complete": True}
    assert output["stderr"] == {"bytes": 0, "dropped": 0, "complete": True}


async def test_output_after_the_leaders_exit_comes_before_the_receipt(runs: Runs) -> None:
    # On a machine that stands still the time for what comes late is over first: the child minds no TERM.
    script = "trap '' TERM; (sleep .15; echo late) & echo early"
    run = await runs.sh(script, completion="leader", grace=PATIENCE)
    receipt = await runs.receipt(run)
    assert await runs.output(run) == b"early\nlate\n"
    kinds = [one.kind for one in await runs.events(run)]
    assert kinds.index(Kind.PROGRAM_EXITED) < len(kinds) - 2
    assert receipt["output"]["stdout"]["complete"] is True


async def test_last_words_of_a_stopped_tree_are_kept(runs: Runs) -> None:
    """Written between the TERM and the end, by a child that nobody waits for."""
    child = "(trap 'head -c 60000 /dev/zero; exit' TERM; echo ready; while :; do sleep .02; done)"
    run = await runs.sh(f"{child} & read go; exit 0", stdin="open", grace=PATIENCE)
    await runs.printed(run, b"ready\n")
    await runs.sup.write_stdin(run.id, b"\n")
    receipt = await runs.receipt(run)
    assert await runs.output(run) == b"ready\n" + bytes(60_000)
    assert receipt["output"]["stdout"] == {"bytes": 60_006, "dropped": 0, "complete": True}


async def test_a_pipe_held_from_outside_is_reported_as_incomplete(runs: Runs) -> None:
    """Somebody who is no descendant keeps the writing end: no end-of-file will ever come."""
    run = await runs.python("import os, time\nprint(os.getpid(), flush=True)\ntime.sleep(3131)")
    await runs.printed(run, b"\n")
    pid = int(await runs.output(run))
    held = os.open(f"/proc/{pid}/fd/1", os.O_WRONLY)
    try:
        await runs.sup.stop(run.id)
        output = (await runs.receipt(run))["output"]
    finally:
        os.close(held)
    assert output["stdout"]["complete"] is False
    assert output["stderr"]["complete"] is True


@settings(max_examples=12)
@given(
    pieces=st.lists(
        st.tuples(st.sampled_from([1, 2]), st.binary(max_size=40) | st.text(max_size=20).map(str.encode)),
        max_size=12,
    )
)
async def test_raw_output_equals_the_programs_bytes(runs: Runs, pieces: list[tuple[int, bytes]]) -> None:
    script = "import os\n" + "".join(f"os.write({fd}, {data!r})\n" for fd, data in pieces)
    run = await runs.python(script)
    receipt = await runs.receipt(run)
    for fd, stream in ((1, "stdout"), (2, "stderr")):
        expected = b"".join(data for target, data in pieces if target == fd)
        assert await runs.output(run, stream) == expected
        assert receipt["output"][stream] == {"bytes": len(expected), "dropped": 0, "complete": True}
    check_gapless(await runs.events(run))


async def test_a_flood_on_both_streams_arrives_whole(runs: Runs) -> None:
    script = """
import os, threading
def flood(fd, seed):
    for number in range(400):
        data, at = (b"%d %d|" % (seed, number)) * 1000, 0
        while at < len(data):
            at += os.write(fd, data[at:])
threads = [threading.Thread(target=flood, args=(fd, fd)) for fd in (1, 2)]
[one.start() for one in threads]
[one.join() for one in threads]
"""
    run = await runs.python(script)
    await runs.wait(run)
    for fd, stream in ((1, "stdout"), (2, "stderr")):
        expected = b"".join((b"%d %d|" % (fd, number)) * 1000 for number in range(400))
        got = await runs.output(run, stream)
        assert hashlib.sha256(got).digest() == hashlib.sha256(expected).digest()


async def test_ordinary_values_are_no_secrets(runs: Runs) -> None:
    run = await runs.sh("echo $DEBUG $HOME", env={"DEBUG": "1", "HOME": "/srv"})
    await runs.wait(run)
    assert await runs.output(run) == b"1 /srv\n"


async def test_a_follower_of_a_live_run_gets_each_event_once(runs: Runs) -> None:
    run = await runs.sh("for i in $(seq 1 60); do echo tick $i; sleep .005; done")
    seen = [event async for event in runs.sup.follow(run.id)]
    check_gapless(seen)
    assert seen[-1].kind == Kind.RUN_FINISHED
    text = b"".join(one.data for one in seen if one.kind == Kind.OUTPUT).decode()
    assert text == "".join(f"tick {number}\n" for number in range(1, 61))


async def test_a_follower_from_the_beginning_of_a_hundred_thousand_events(runs: Runs) -> None:
    run = await runs.python(PACKETS + "for number in range(100_000): os.write(1, b'%d\\n' % number)")
    await runs.wait(run, timeout=60)
    seen = [event async for event in runs.sup.follow(run.id)]
    assert [one.seq for one in seen] == list(range(1, len(seen) + 1))
    output = [one.data for one in seen if one.kind == Kind.OUTPUT]
    assert output == [b"%d\n" % number for number in range(100_000)]
