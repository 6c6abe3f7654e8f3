"""``start``: the durable answer, idempotency, refusals."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from durable_supervisor.wire.documents import validate
from tests.cli.helpers import Cli, assert_one_error_line
from tests.support import eventually


def test_start_prints_the_start_document(cli: Cli) -> None:
    form = cli.ok("start", "--json", "--request-id", "scan-17", "--", "true").document
    validate("start", form)
    assert form["request_id"] == "scan-17"
    assert form["attempt"] == 1
    assert form["admission"] == "new"


def test_json_and_state_dir_stand_before_or_after_the_verb(cli: Cli, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir(mode=0o700)
    before = cli.ok("--json", "--state-dir", str(cli.state_dir), "start", "--", "true").document
    assert cli.ok("inspect", before["run_id"], "--json", "--state-dir", str(cli.state_dir)).document
    assert (
        cli("--state-dir", str(cli.state_dir), "inspect", before["run_id"], "--state-dir", str(other)).code
        == 3
    )


def test_a_person_is_told_that_nothing_was_started(cli: Cli) -> None:
    first = cli.ok("start", "--request-id", "r1", "--", "true").stdout
    again = cli.ok("start", "--request-id", "r1", "--", "true").stdout
    assert "not started again" not in first
    assert again.endswith("(request r1, attempt 1, not started again)\n")
    assert again.split()[0] == first.split()[0]


def test_a_person_sees_the_run_id_first(cli: Cli) -> None:
    line = cli.ok("start", "--request-id", "r1", "--", "true").stdout
    assert line.count("\n") == 1
    run_id = line.split()[0]
    assert len(run_id) == 16
    assert "r1" in line
    assert "\x1b" not in line


def test_the_run_outlives_the_command(cli: Cli, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    run_id = cli.start("--", "sh", "-c", f"read line < {gate}; echo $line; exit 5")
    assert cli.inspect(run_id)["state"] == "running"
    gate.write_text("hello\n")
    assert cli("wait", run_id).code == 5
    assert cli.ok("logs", run_id).stdout == "hello\n"


def test_the_same_request_id_never_runs_twice(cli: Cli, tmp_path: Path) -> None:
    words = ("start", "--json", "--request-id", "once", "--", "sh", "-c", f"echo ran >> {tmp_path}/ran")
    first = cli.ok(*words).document
    assert cli("wait", first["run_id"]).code == 0
    again = cli.ok(*words).document
    assert again["run_id"] == first["run_id"]
    assert again["admission"] == "existing"
    assert (tmp_path / "ran").read_text() == "ran\n"


@pytest.mark.parametrize(
    "change",
    [
        ["--", "true", "other"],
        ["--env", "A=2", "--", "true"],
        ["--env", "A=1", "--cwd", "/", "--", "true"],
        ["--env", "A=1", "--timeout", "5", "--", "true"],
    ],
)
def test_the_same_id_for_another_request_is_a_conflict(cli: Cli, change: list[str]) -> None:
    cli.ok("start", "--request-id", "r", "--env", "A=1", "--", "true")
    refused = cli("start", "--request-id", "r", *change)
    assert refused.code == 4
    assert_one_error_line(refused, "IDEMPOTENCY_CONFLICT")
    assert refused.stdout == ""


def test_a_missing_program_is_a_run_that_never_started(cli: Cli, tmp_path: Path) -> None:
    program = tmp_path / "later"
    words = ("start", "--json", "--request-id", "later", "--", str(program))
    first = cli(*words)
    assert first.code == 1
    assert first.document["state"] == "not_started"
    assert first.error["code"] == "NOT_STARTED"
    assert "ENOENT" in first.error["message"]
    plain = cli("start", "--request-id", "later", "--", str(program))
    assert plain.code == 1
    assert "not_started" in plain.stdout
    assert_one_error_line(plain, "NOT_STARTED")
    program.write_text("#!/bin/sh\nexit 3\n")
    program.chmod(0o755)
    second = cli.ok(*words).document
    assert second["run_id"] == first.document["run_id"]
    assert second["attempt"] > first.document["attempt"]
    assert cli("wait", second["run_id"]).code == 3


def test_dry_run_starts_nothing_and_shows_no_value(cli: Cli) -> None:
    words = [
        "--secret-env",
        "API_TOKEN",
        "--env",
        "PASSWORD=hunter2hunter2",
        "--stdin",
        "-",
        "--label",
        "a=b",
    ]
    done = cli.ok(
        "start", "--dry-run", "--json", *words, "--", "echo", "hunter2hunter2",
        stdin=b"four", API_TOKEN="sesame-open-sesame",
    )  # fmt: skip
    assert done.document["env"] == ["PASSWORD"]
    assert done.document["secret_env"] == ["API_TOKEN"]
    assert done.document["stdin"] == {"bytes": 4}
    assert "hunter2" not in done.stdout
    assert "sesame" not in done.stdout
    assert os.listdir(cli.state_dir) == []
    assert "nothing was started" in cli.ok("start", "--dry-run", "--", "true").stdout


def test_environment_and_stdin_reach_the_program(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "vars").write_text("FROM_FILE=file\nBOTH=file\n")
    done = cli(
        "run", "--env-file", str(tmp_path / "vars"), "--env", "BOTH=option", "--inherit-env", "HANDED_ON",
        "--stdin", "-", "--cwd", str(tmp_path),
        "--", "sh", "-c", "echo $FROM_FILE $BOTH $HANDED_ON $LEFT_OUT; pwd; cat",
        stdin=b"\x00\xffbytes", HANDED_ON="ours", LEFT_OUT="no",
    )  # fmt: skip
    assert done.code == 0
    assert done.raw == b"file option ours\n" + os.fsencode(tmp_path.resolve()) + b"\n\x00\xffbytes"


def test_a_secret_never_reaches_the_disk(cli: Cli) -> None:
    done = cli(
        "run", "--secret-env", "KEYWORD", "--", "sh", "-c", "echo $KEYWORD", KEYWORD="sesame-open-sesame"
    )
    assert done.code == 0
    assert "sesame" not in done.stdout
    for root, _, names in os.walk(cli.state_dir):
        for name in names:
            path = os.path.join(root, name)
            if os.path.isfile(path):
                assert b"sesame" not in Path(path).read_bytes(), path


BAD: list[tuple[list[str | bytes], int, str]] = [
    (["start"], 2, "INVALID_REQUEST"),
    (["start", "--"], 2, "INVALID_REQUEST"),
    (["start", "--", ""], 2, "INVALID_REQUEST"),
    (["start", "--request-id", "a b", "--", "true"], 2, "INVALID_REQUEST"),
    (["start", "--request-id", "line\n", "--", "true"], 2, "INVALID_REQUEST"),
    (["start", "--request-id", "", "--", "true"], 2, "INVALID_REQUEST"),
    (["start", "--request-id", "x" * 129, "--", "true"], 2, "INVALID_REQUEST"),
    (["start", "--timeout", "-1", "--", "true"], 2, "INVALID_REQUEST"),
    (["start", "--timeout", "0", "--", "true"], 2, "INVALID_REQUEST"),
    (["start", "--timeout", "nan", "--", "true"], 2, "INVALID_REQUEST"),
    (["start", "--idle-timeout", "inf", "--", "true"], 2, "INVALID_REQUEST"),
    (["start", "--grace", "-0.5", "--", "true"], 2, "INVALID_REQUEST"),
    (["start", "--max-output", "0", "--", "true"], 2, "INVALID_REQUEST"),
    (["start", "--max-output", "lots", "--", "true"], 2, "INVALID_REQUEST"),
    (["start", "--on-limit", "explode", "--", "true"], 2, "INVALID_REQUEST"),
    (["start", "--completion", "maybe", "--", "true"], 2, "INVALID_REQUEST"),
    (["start", "--env", "NOVALUE", "--", "true"], 2, "INVALID_REQUEST"),
    (["start", "--env", "LD_PRELOAD=/x.so", "--", "true"], 2, "INVALID_REQUEST"),
    (["start", "--secret-env", "K=short", "--", "true"], 2, "INVALID_REQUEST"),
    (["start", "--secret-env", "NOT_SET_HERE", "--", "true"], 2, "INVALID_REQUEST"),
    (["start", "--env-file", "/no/such/file", "--", "true"], 2, "INVALID_REQUEST"),
    (["start", "--stdin", "/no/such/file", "--", "true"], 2, "INVALID_REQUEST"),
    (["start", "--label", "=x", "--", "true"], 2, "INVALID_REQUEST"),
    (["start", "--no-such-option", "--", "true"], 2, "INVALID_REQUEST"),
    (["strat", "--", "true"], 2, "INVALID_REQUEST"),
    (["inspect"], 2, "INVALID_REQUEST"),
    (["inspect", "nosuchrun"], 3, "UNKNOWN_RUN"),
    (["inspect", "\x1b[31m"], 3, "UNKNOWN_RUN"),
    (["inspect", b"\xff\xfe"], 3, "UNKNOWN_RUN"),
    (["inspect", ""], 3, "UNKNOWN_RUN"),
    (["events", "0" * 16], 3, "UNKNOWN_RUN"),
    (["events", "0" * 16, "--after", "-1"], 2, "INVALID_REQUEST"),
    (["events", "0" * 16, "--limit", "0"], 2, "INVALID_REQUEST"),
    (["events", "0" * 16, "--kind", "noise"], 2, "INVALID_REQUEST"),
    (["logs", "0" * 16], 3, "UNKNOWN_RUN"),
    (["logs", "0" * 16, "--stream", "stdlog"], 2, "INVALID_REQUEST"),
    (["attach", "0" * 16], 3, "UNKNOWN_RUN"),
    (["replay", "0" * 16, "--speed", "0"], 2, "INVALID_REQUEST"),
    (["wait", "0" * 16], 3, "UNKNOWN_RUN"),
    (["wait", "0" * 16, "--timeout", "nan"], 2, "INVALID_REQUEST"),
    (["stop", "0" * 16], 3, "UNKNOWN_RUN"),
    (["stop", "0" * 16, "--grace", "-1"], 2, "INVALID_REQUEST"),
    (["signal", "0" * 16, "NOPE"], 2, "INVALID_REQUEST"),
    (["signal", "0" * 16, "TERM"], 3, "UNKNOWN_RUN"),
    (["write-stdin", "0" * 16, "--eof"], 3, "UNKNOWN_RUN"),
    (["resolve", "0" * 16], 2, "INVALID_REQUEST"),
    (["resolve", "0" * 16, "--kill", "--wait"], 2, "INVALID_REQUEST"),
    (["resolve", "0" * 16, "--accept"], 3, "UNKNOWN_RUN"),
    (["list", "--state", "asleep"], 2, "INVALID_REQUEST"),
    (["list", "--limit", "many"], 2, "INVALID_REQUEST"),
    (["feed", "--after", "x"], 2, "INVALID_REQUEST"),
]


@pytest.mark.parametrize(("words", "code", "name"), BAD, ids=lambda value: repr(value)[:60])
def test_bad_input_is_one_typed_line(cli: Cli, words: list[str | bytes], code: int, name: str) -> None:
    refused = cli(*words)
    assert (refused.code, refused.stdout) == (code, ""), refused.stderr
    assert_one_error_line(refused, name)
    assert "\x1b" not in refused.stderr
    typed = cli(*words[:1], "--json", *words[1:])
    assert typed.code == code
    assert typed.error["code"] == name
    validate("error", {"error": typed.error})
    assert typed.error["hint"]


def test_undecodable_words_are_kept_as_they_are(cli: Cli) -> None:
    done = cli("run", "--", "printf", "%s", b"\xff\xfe")
    assert (done.code, done.raw) == (0, b"\xff\xfe")
    listed = cli.ok("list", "--json").document
    assert listed["runs"][0]["argv"] == ["printf", "%s", "\udcff\udcfe"]
    assert cli.ok("list").stdout.isascii()


def test_live_figures_of_a_running_tree(cli: Cli) -> None:
    run_id = cli.start("--", "sh", "-c", "sleep 3131 & wait")
    form = eventually(lambda: _with_processes(cli, run_id, 2))
    validate("inspect", form)
    assert "sleep" in cli.ok("inspect", run_id).stdout
    cli.ok("stop", "--grace", "1", run_id)
    assert cli.inspect(run_id)["live"] is None


def _with_processes(cli: Cli, run_id: str, count: int) -> dict[str, object] | None:
    form = cli.inspect(run_id)
    live = form["live"]
    return form if live is not None and len(live["processes"]) >= count else None


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            ["no-such-program-3131"],
            "ENOENT (No such file or directory): no-such-program-3131 (put it right and start",
        ),
        (["--request-id", "x", "no-such-program-3131"], "send the same request id again"),
        (["ls | wc"], "no shell reads it"),
        (["--cwd", "/no/such", "true"], "): directory /no/such ("),
        (["{tmp}/lost"], "ENOENT (the interpreter that it names is missing)"),
        (["{tmp}/plain"], "ENOEXEC (not a program; a script begins with #!)"),
    ],
)
def test_a_program_that_cannot_run_says_what_to_do(
    cli: Cli, tmp_path: Path, words: list[str], told: str
) -> None:
    for name, text in (("lost", "#!/no/such/interpreter\n"), ("plain", "echo hello\n")):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    refused = cli("run", *(word.replace("{tmp}", str(tmp_path)) for word in words))
    assert refused.code == 1
    assert_one_error_line(refused, "NOT_STARTED")
    assert told in refused.stderr
