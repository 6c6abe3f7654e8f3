"""``run``: as if the program had been typed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from functools import partial
from pathlib import Path

import pytest

from durable_supervisor.wire.documents import validate
from tests.cli.helpers import Cli, assert_one_error_line
from tests.support import PATIENCE, eventually


@pytest.mark.parametrize(
    ("script", "code"),
    [("exit 0", 0), ("exit 7", 7), ("exit 255", 255), ("kill -9 $$", 137), ("kill -TERM $$", 143)],
)
def test_the_programs_own_code(cli: Cli, script: str, code: int) -> None:
    done = cli("run", "--", "sh", "-c", script)
    assert (done.code, done.stdout, done.stderr) == (code, "", "")


def test_each_stream_goes_where_it_belongs(cli: Cli) -> None:
    done = cli("run", "--", "sh", "-c", "echo out; echo err >&2")
    assert (done.stdout, done.stderr) == ("out\n", "err\n")


def test_bytes_into_a_pipe_are_exact(cli: Cli, tmp_path: Path) -> None:
    data = bytes(range(256)) * 3000
    (tmp_path / "data").write_bytes(data)
    assert cli("run", "--", "cat", str(tmp_path / "data")).raw == data


def test_a_deadline_is_124(cli: Cli) -> None:
    assert cli("run", "--timeout", "0.3", "--grace", "1", "--", "sleep", "3131").code == 124
    assert cli("run", "--idle-timeout", "300ms", "--grace", "1", "--", "sleep", "3131").code == 124


@pytest.mark.parametrize(
    ("options", "script", "words"),
    [
        (["--timeout", "0.3"], "sleep 3131", "timed_out (TERM)"),
        (["--cpu-time", "0.2"], "while :; do :; done", "timed_out (TERM): its processor time is used up"),
        (["--max-output", "64K", "--on-limit", "terminate"], "yes", "stdout_limit_exceeded ("),
    ],
)
def test_what_ended_it_is_said_to_a_script_as_well(
    cli: Cli, options: list[str], script: str, words: str
) -> None:
    done = cli("run", *options, "--grace", "5", "--", "sh", "-c", script)
    if "--cpu-time" in options and "signaled" in cli("list").stdout:
        pytest.skip("no group counts the tree's processor time here: the kernel ends the process by itself")
    last = done.stderr.splitlines()[-1]
    assert re.match(rf"durable-supervisor: run \w+: {re.escape(words)}", last), done.stderr
    assert ": run " not in cli("run", "-q", *options, "--grace", "5", "--", "sh", "-c", script).stderr


def test_too_much_output_ends_it(cli: Cli) -> None:
    done = cli("run", "--json", "--max-output", "64K", "--on-limit", "terminate", "--grace", "1", "--", "yes")
    assert done.document["outcome"]["kind"] == "stdout_limit_exceeded"
    assert done.code > 128


def test_json_is_one_inspect_document(cli: Cli) -> None:
    done = cli("run", "--json", "--", "sh", "-c", "echo out; exit 4")
    assert done.code == 4
    validate("inspect", done.document)
    assert done.document["outcome"] == {"kind": "exited", "code": 4, "signal": None}


def test_a_program_that_cannot_be_found(cli: Cli) -> None:
    done = cli("run", "--", "/no/such/program")
    assert (done.code, done.stdout) == (1, "")
    assert_one_error_line(done, "NOT_STARTED")


def test_a_second_run_of_the_same_request_joins_it(cli: Cli) -> None:
    words = ("run", "--request-id", "join", "--", "sh", "-c", "echo $$; exit 3")
    first, second = cli(*words), cli(*words)
    assert (first.code, second.code) == (3, 3)
    assert first.stdout == second.stdout


def test_two_at_once(cli: Cli, tmp_path: Path) -> None:
    """Each waits for the other's program: were the directory owned for longer, neither would end."""
    scripts = [
        f"touch {tmp_path}/{mine}; until test -e {tmp_path}/{other}; do sleep 0.05; done; exit {code}"
        for mine, other, code in (("a", "b", 5), ("b", "a", 6))
    ]
    both = [cli.popen("run", "--", "sh", "-c", script) for script in scripts]
    assert [process.wait(timeout=60) for process in both] == [5, 6]


def test_the_run_survives_the_commands_death(cli: Cli, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "gate")
    process = cli.popen(
        "run", "--request-id", "survivor", "--",
        "sh", "-c", f"echo begun; read line < {tmp_path}/gate; echo $line",
        stdout=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    with process.stdout as output:
        assert output.readline() == b"begun\n"
        process.send_signal(signal.SIGKILL)
        process.wait(timeout=PATIENCE)
    (tmp_path / "gate").write_text("went on\n")
    run_id = cli.ok("list", "--json").document["runs"][0]["run_id"]
    assert cli("wait", run_id).code == 0
    assert cli.ok("logs", run_id).stdout == "begun\nwent on\n"


TALKER = ("--", "sh", "-c", "while :; do echo line || exit 9; sleep 0.02; done")


def said_after_one_line(cli: Cli, *options: str) -> str:
    """What ``run`` says on stderr once nobody reads its output any more."""
    process = cli.popen("run", *options, *TALKER, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.wait(timeout=PATIENCE) == 141
    with process.stderr as errors:
        return errors.read().decode()


@pytest.mark.parametrize("options", [(), ("-q",)])
def test_a_run_goes_on_without_a_reader_and_it_is_said_how_to_end_it(
    cli: Cli, options: tuple[str, ...]
) -> None:
    said = said_after_one_line(cli, *options)
    run_id = _only_run(cli)
    assert f"run {run_id} goes on ('dsup attach {run_id}' comes back to it, 'dsup stop {run_id}'" in said
    assert said.count("\n") == 1
    assert cli.inspect(str(run_id))["state"] == "running"
    cli.ok("stop", str(run_id), "--grace", "1")


def test_a_run_of_this_commands_lifetime_ends_with_its_reader(cli: Cli) -> None:
    said = said_after_one_line(cli, "--lifetime", "scope")
    run_id = str(_only_run(cli))
    assert said == f"the reader of the output is gone; run {run_id} is stopped\n"
    assert cli("wait", run_id).code == 143
    assert cli.inspect(run_id)["receipt"]["stop"]["reason"] == "host_gone"


def test_a_run_of_this_commands_lifetime_ends_when_it_is_killed(cli: Cli) -> None:
    process = cli.popen("run", "--lifetime", "scope", *TALKER, stdout=subprocess.PIPE)
    assert process.stdout is not None
    with process.stdout as output:
        assert output.readline() == b"line\n"
        process.kill()
        process.wait(timeout=PATIENCE)
    run_id = str(_only_run(cli))
    assert cli("wait", run_id).code == 143
    assert cli.inspect(run_id)["outcome"]["kind"] == "cancelled"


def stands_still(counter: Path, seen: list[int]) -> int:
    """The same number, and more than none, ten looks in a row; else 0."""
    text = counter.read_text() if counter.exists() else ""
    seen.append(int(text or 0))
    return seen[-1] if len(seen) >= 10 and set(seen[-10:]) == {seen[-1]} else 0


def test_a_program_with_a_window_waits_for_who_reads(cli: Cli, tmp_path: Path) -> None:
    """More than is kept without a window (``--max-output``), and still the reader gets it all."""
    counter, size = tmp_path / "counter", 1 << 20
    script = f"i=0; while [ $i -lt 256 ]; do head -c 4096 /dev/zero; i=$((i+1)); echo $i > {counter}; done"
    process = cli.popen(
        "run", "--lifetime", "scope", "--window", "64K", "--max-output", "512K", "--", "sh", "-c", script,
        stdout=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    with process.stdout as output:
        stands = eventually(partial(stands_still, counter, []))
        # Two pipes, ours and the program's, the window, and what is on its way between them.
        assert stands <= 96, "of 256: it is not ahead of who reads nothing by more"
        assert len(output.read()) == size
    assert process.wait(timeout=PATIENCE) == 0
    assert cli.inspect(str(_only_run(cli)))["receipt"]["output"]["stdout"]["bytes"] == size


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--lifetime", "session"], "--lifetime: must be 'detached' or 'scope'"),
        (["--lifetime", ""], "--lifetime: must be 'detached' or 'scope'"),
        (["--completion", ""], "--completion: must be 'leader' or 'tree'"),
        (["--window", "64K"], "--window: needs lifetime 'scope' (give --lifetime scope, too)"),
        (["--lifetime", "scope", "--window", "12"], "--window: must be a whole number of bytes from 4096"),
        (["--lifetime", "scope", "--window", "64K", "--pty"], "--window: needs pipes"),
    ],
)
def test_lifetimes_and_windows_that_are_none(cli: Cli, options: list[str], told: str) -> None:
    refused = cli("run", *options, "--", "true")
    assert refused.code == 2
    assert_one_error_line(refused, "INVALID_REQUEST")
    assert told in refused.stderr


def test_a_reader_that_does_not_read_cannot_hold_up_ctrl_c(cli: Cli) -> None:
    process = cli.popen("run", "--grace", "1", "--", "yes", stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        run_id = eventually(lambda: _only_run(cli))
        assert run_id is not None
        eventually(lambda: int(cli.inspect(run_id)["head"]) > 100)
        process.send_signal(signal.SIGINT)
        eventually(lambda: cli.inspect(run_id)["state"] == "finished")
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def _only_run(cli: Cli) -> str | None:
    listed = cli("list", "--json")
    runs = listed.document["runs"] if listed.code == 0 else []
    return str(runs[0]["run_id"]) if runs else None
