"""``list``, ``inspect``, ``wait``, ``events``, ``feed``: what is printed is what is documented."""

from __future__ import annotations

import json
import re
import subprocess

import pytest

from durable_supervisor.wire.documents import validate
from tests.cli.helpers import Cli, assert_one_error_line
from tests.support import PATIENCE, eventually

SCRIPT = "echo one; echo two >&2; printf '\\377'; exit 7"


@pytest.fixture
def finished(cli: Cli) -> str:
    run_id = cli.start("--label", "team=infra", "--", "sh", "-c", SCRIPT)
    assert cli("wait", run_id).code == 7
    return run_id


def test_inspect_document(cli: Cli, finished: str) -> None:
    form = cli.inspect(finished)
    validate("inspect", form)
    assert form["state"] == "finished"
    assert form["outcome"] == {"kind": "exited", "code": 7, "signal": None}
    assert form["program"]["pid"] > 0
    validate("receipt", form["receipt"])


@pytest.mark.parametrize(
    ("bound", "grace", "script", "words"),
    [
        (["--timeout", "0.2"], "60", "sleep 60", "timeout"),
        (["--idle-timeout", "0.2"], "60", "sleep 60", "idle timeout"),
        # What it prints comes when it has put TERM off: a bound of time could be over before that.
        (
            ["--max-output", "64K", "--on-limit", "terminate"],
            "0.1",
            "trap '' TERM; yes; sleep 60",
            "stdout limit, KILL after a grace of 100ms",
        ),
    ],
)
def test_inspect_says_why_it_was_stopped(
    cli: Cli, bound: list[str], grace: str, script: str, words: str
) -> None:
    assert cli("run", *bound, "--grace", grace, "--", "sh", "-c", script).code in (124, 137)
    (run,) = cli.ok("list", "--json").document["runs"]
    assert re.search(f"^stopped +{words}$", cli.ok("inspect", run["run_id"]).stdout, re.MULTILINE)


def test_inspect_for_people(cli: Cli, finished: str) -> None:
    text = cli.ok("inspect", finished).stdout
    assert "exited 7" in text
    assert "team=infra" in text
    assert "\x1b" not in text


def test_a_prefix_names_a_run(cli: Cli, finished: str) -> None:
    assert cli.ok("inspect", "--json", finished[:6]).document["run_id"] == finished
    assert cli.ok("inspect", "--json", finished.upper()).document["run_id"] == finished


def test_a_prefix_of_two_runs_is_ambiguous(cli: Cli) -> None:
    first: dict[str, str] = {}
    for _ in range(33):  # 32 letters: two of 33 runs share the first one
        run_id = cli.start("--", "true")
        if run_id[0] in first:
            break
        first[run_id[0]] = run_id
    refused = cli("inspect", run_id[0])
    assert refused.code == 2
    assert_one_error_line(refused, "AMBIGUOUS_RUN")


def test_a_request_id_for_a_run_id_is_told_apart(cli: Cli) -> None:
    run_id = cli.start("--request-id", "nightly", "--", "true")
    refused = cli("wait", "nightly")
    assert refused.code == 3
    assert_one_error_line(refused, "UNKNOWN_RUN")
    assert f"its run is {run_id}" in refused.stderr


def test_list_document_and_filters(cli: Cli, finished: str) -> None:
    running = cli.start("--", "sleep", "3131")
    form = cli.ok("list", "--json").document
    validate("list", form)
    assert [run["run_id"] for run in form["runs"]] == [running, finished]
    labelled = cli.ok("list", "--json", "--label", "team=infra").document
    assert [run["run_id"] for run in labelled["runs"]] == [finished]
    page = cli.ok("list", "--json", "--limit", "1").document
    rest = cli.ok("list", "--json", "--before", str(page["next_before"])).document
    assert [run["run_id"] for run in page["runs"] + rest["runs"]] == [running, finished]
    table = cli.ok("list").stdout
    assert table.splitlines()[0].split() == ["RUN", "STATE", "STARTED", "TOOK", "REQUEST", "COMMAND"]
    assert "sleep 3131" in table
    cli.ok("stop", running)


def test_list_of_nothing(cli: Cli) -> None:
    assert cli.ok("list", "--json").document["runs"] == []


def test_events_are_ndjson_of_valid_events(cli: Cli, finished: str) -> None:
    events = cli.ok("events", "--json", finished).documents
    for event in events:
        validate("event", event)
    seqs = [event["seq"] for event in events]
    assert seqs == list(range(1, len(seqs) + 1))
    assert events[-1]["kind"] == "run.finished"
    output = {event["stream"]: event for event in events if event["kind"] == "output"}
    assert output["stderr"]["text"] == "two\n"
    assert any("base64" in event for event in events)


def test_pages_make_up_the_whole(cli: Cli, finished: str) -> None:
    whole = cli.ok("events", "--json", finished).documents
    paged: list[dict[str, object]] = []
    while chunk := cli.ok("events", "--json", finished, "--limit", "3", "--after", str(len(paged))).documents:
        paged += chunk
    assert paged == whole


def test_filters_do_not_renumber(cli: Cli, finished: str) -> None:
    whole = cli.ok("events", "--json", finished).documents
    quiet = cli.ok("events", "--json", "--no-output", finished).documents
    assert quiet == [event for event in whole if event["kind"] != "output"]
    exits = cli.ok(
        "events", "--json", "--kind", "program.exited", "--kind", "run.finished", finished
    ).documents
    assert exits == [event for event in whole if event["kind"] in ("program.exited", "run.finished")]


def test_events_for_people(cli: Cli, finished: str) -> None:
    text = cli.ok("events", finished).stdout
    assert "program.exited" in text
    assert "code 7" in text
    assert "\\xff" in text


def test_follow_sees_what_is_still_to_come(cli: Cli) -> None:
    run_id = cli.start("--stdin", "open", "--", "sh", "-c", "read line; echo $line; exit 2")
    process = cli.popen("events", "--follow", "--json", run_id, stdout=subprocess.PIPE)
    assert process.stdout is not None
    with process.stdout as lines:
        while json.loads(lines.readline())["kind"] != "program.released":
            pass
        cli.ok("write-stdin", run_id, stdin=b"hello\n")
        rest = [json.loads(line) for line in lines]
    assert process.wait(timeout=PATIENCE) == 0
    assert "hello\n" in [event.get("text") for event in rest]
    assert rest[-1]["kind"] == "run.finished"


def test_a_cursor_ahead_of_the_log_is_an_error(cli: Cli, finished: str) -> None:
    refused = cli("events", finished, "--after", "100000")
    assert refused.code == 1
    assert_one_error_line(refused, "CURSOR_AHEAD")


def test_wait_with_a_timeout(cli: Cli) -> None:
    run_id = cli.start("--", "sleep", "3131")
    late = cli("wait", run_id, "--timeout", "0.2")
    assert late.code == 124
    assert late.stderr.startswith("error: WAIT_TIMEOUT: ")
    assert cli.inspect(run_id)["state"] == "running"
    cli.ok("stop", run_id)
    stopped = cli("wait", "--json", run_id)
    assert stopped.code == 143
    validate("inspect", stopped.document)
    assert stopped.document["outcome"]["kind"] == "cancelled"


def test_feed(cli: Cli, finished: str) -> None:
    entries = cli.ok("feed", "--json").documents
    positions = [entry["position"] for entry in entries]
    assert positions == sorted(positions)
    assert {entry["run_id"] for entry in entries} == {finished}
    later = cli.ok("feed", "--json", "--after", str(positions[0])).documents
    assert later == entries[1:]
    assert len(cli.ok("feed", "--json", "--limit", "1").documents) == 1
    assert finished in cli.ok("feed").stdout


def test_feed_follows(cli: Cli, finished: str) -> None:
    last = cli.ok("feed", "--json").documents[-1]["position"]
    process = cli.popen("feed", "--json", "--follow", "--after", str(last), stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        run_id = cli.start("--", "true")
        # Before it may come the end of the first run, which this start has put into the journal.
        while json.loads(process.stdout.readline())["run_id"] != run_id:
            pass
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_a_reader_that_leaves_is_no_error(cli: Cli) -> None:
    run_id = cli.start("--", "seq", "200000")
    cli("wait", run_id)
    process = cli.popen("logs", run_id, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.wait(timeout=PATIENCE) == 141
    with process.stderr as errors:
        assert errors.read() == b""


def test_reading_beside_an_owner(cli: Cli) -> None:
    """`run` owns the directory only while it starts; a listing in the middle of it never fails."""
    process = cli.popen("run", "--", "sleep", "1", stdout=subprocess.DEVNULL)
    eventually(lambda: cli("list", "--json").document["runs"])
    assert process.wait(timeout=PATIENCE) == 0
