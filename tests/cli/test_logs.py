"""``logs`` and ``replay``: what the program printed, and nothing that acts on a terminal."""

from __future__ import annotations

import json
import subprocess
import time

from tests.cli.helpers import Cli
from tests.support import PATIENCE

HOSTILE = b"\x1b]0;owned\x07\x1b[2J\xff\x9b31m caf\xc3\xa9\r\n"


def finished(cli: Cli, script: str) -> str:
    run_id = cli.start("--", "sh", "-c", script)
    cli("wait", run_id)
    return run_id


def test_escaped_unless_raw(cli: Cli) -> None:
    octal = "".join(f"\\{byte:03o}" for byte in HOSTILE)
    run_id = finished(cli, f"printf '{octal}'")
    assert cli.ok("logs", run_id).stdout == "\\x1b]0;owned\\x07\\x1b[2J\\xff\\x9b31m café\n"
    assert cli.ok("logs", "--raw", run_id).raw == HOSTILE
    assert b"\x1b" not in cli.ok("logs", "--json", run_id).raw
    assert b"\x1b" not in cli.ok("events", run_id).raw
    assert "\\x1b" in cli.ok("events", run_id).stdout


def test_hostile_words_are_escaped_in_tables(cli: Cli) -> None:
    run_id = cli.start("--label", "l=\x1b[31m", "--", "true", "\x1b]0;owned\x07", "[red]markup[/red]")
    for words in (["list"], ["inspect", run_id], ["events", run_id]):
        text = cli.ok(*words).stdout
        assert "\x1b" not in text
        assert "[red]markup" in text


def test_streams(cli: Cli) -> None:
    run_id = finished(cli, "echo out; sleep 0.1; echo err >&2")
    assert cli.ok("logs", run_id).stdout == "out\nerr\n"
    assert cli.ok("logs", run_id, "--stream", "stdout").stdout == "out\n"
    assert cli.ok("logs", run_id, "--stream", "stderr").stdout == "err\n"


def test_tail(cli: Cli) -> None:
    run_id = finished(cli, "seq 1000; printf unfinished")
    assert cli.ok("logs", run_id, "--tail", "3").stdout == "999\n1000\nunfinished"
    assert cli.ok("logs", run_id, "--tail", "0").stdout == ""
    assert cli.ok("logs", run_id, "--tail", "5000").stdout == cli.ok("logs", run_id).stdout


def test_tail_then_follow(cli: Cli) -> None:
    run_id = cli.start("--stdin", "open", "--", "sh", "-c", "seq 10; read line; echo $line")
    process = cli.popen("logs", "--tail", "2", "--follow", run_id, stdout=subprocess.PIPE)
    assert process.stdout is not None
    with process.stdout as lines:
        # Output may come in one piece or in several: what counts is that 10 is the last of the backlog.
        while lines.readline() != b"10\n":
            pass
        cli.ok("write-stdin", run_id, stdin=b"more\n")
        assert lines.read() == b"more\n"
    assert process.wait(timeout=PATIENCE) == 0


def test_dropped_output_is_told_beside_the_data(cli: Cli) -> None:
    run_id = cli.start("--max-output", "1M", "--", "seq", "500000")
    cli("wait", run_id)
    done = cli("logs", run_id)
    assert done.code == 0
    assert done.stdout.startswith("1\n2\n")
    assert done.stdout.endswith("500000\n")
    assert len(done.stdout) < 1_200_000
    assert "output.dropped" in done.stderr


def test_replay_has_the_original_timing(cli: Cli) -> None:
    run_id = finished(cli, "echo a; sleep 0.6; echo b >&2")
    began = time.monotonic()
    done = cli("replay", "--quiet", run_id)
    took = time.monotonic() - began
    assert (done.code, done.stdout, done.stderr) == (0, "a\n", "b\n")
    assert took > 0.6
    fast = cli("replay", "--speed", "1000", run_id)
    assert "run.finished" in fast.stderr
    events = [
        json.loads(row) for row in cli.ok("replay", "--json", "--speed", "1000", run_id).stdout.splitlines()
    ]
    assert events == cli.ok("events", "--json", run_id).documents


def test_attach_to_what_is_over(cli: Cli) -> None:
    run_id = finished(cli, "echo out; echo err >&2; exit 9")
    done = cli("attach", run_id)
    assert (done.code, done.stdout) == (0, "out\n")
    assert "err\n" in done.stderr
    assert "exited 9" in done.stderr
    assert cli("attach", "--quiet", run_id).stderr == "err\n"


def test_a_lost_log_is_told_from_an_empty_one(cli: Cli) -> None:
    run_id = finished(cli, "echo kept")
    cli.ok("reconcile")
    (log,) = cli.state_dir.glob(f"runs/*/{run_id}.a1.log")
    log.unlink()
    for verb in ("logs", "events"):
        done = cli(verb, run_id)
        assert (done.code, done.stdout) == (0, "")
        assert done.stderr.startswith("its log is missing; ")
    assert cli("wait", run_id).code == 0
    assert cli.ok("logs", finished(cli, "exit 0")).stdout == ""
