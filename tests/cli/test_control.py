"""``stop``, ``signal``, ``write-stdin``, ``resolve``, ``reconcile``, ``recover``, ``doctor``."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from durable_supervisor.wire.documents import validate
from tests.cli.helpers import Cli, assert_one_error_line
from tests.support import eventually, running


def test_stop_ends_the_whole_tree(cli: Cli, tmp_path: Path) -> None:
    run_id = cli.start("--", "sh", "-c", f"setsid sleep 3131 & echo $! > {tmp_path}/pid; wait")
    pid = int(eventually(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text().strip()))
    form = cli.ok("stop", "--json", "--grace", "2", run_id).document
    validate("stop", form)
    assert form["confirmed"] is True
    assert not running(pid)
    again = cli.ok("stop", "--json", run_id).document
    assert again["state"] == "finished"
    assert "cancelled (TERM), already ended" in cli.ok("stop", run_id).stdout
    other = cli.start("--", "sleep", "3131")
    assert cli.ok("stop", other).stdout == f"{other}  cancelled (TERM)\n"


def test_stop_keeps_the_code_of_who_obeys(cli: Cli) -> None:
    run_id = cli.start("--", "sh", "-c", "trap 'exit 0' TERM; echo ready; while :; do sleep 0.05; done")
    eventually(lambda: "ready" in cli("logs", run_id).stdout)
    cli.ok("stop", run_id)
    assert cli("wait", run_id).code == 0
    assert cli.inspect(run_id)["outcome"] == {"kind": "cancelled", "code": 0, "signal": None}


def test_signal(cli: Cli) -> None:
    run_id = cli.start(
        "--", "sh", "-c", "trap 'echo got; exit 4' USR1; echo ready; while :; do sleep 0.05; done"
    )
    eventually(lambda: "ready" in cli("logs", run_id).stdout)
    program = cli.inspect(run_id)["program"]["pid"]
    sent = cli.ok("signal", "--json", run_id, "USR1").document
    validate("control", sent)
    assert (sent["run_id"], sent["signal"], sent["pids"]) == (run_id, int(signal.SIGUSR1), [program])
    assert cli("wait", run_id).code == 4
    late = cli("signal", run_id, str(int(signal.SIGUSR1)))
    assert late.code == 5
    assert_one_error_line(late, "NOT_RUNNING")


def test_write_stdin(cli: Cli, tmp_path: Path) -> None:
    run_id = cli.start("--stdin", "open", "--", "cat")
    data = bytes(range(256)) * 1000
    (tmp_path / "data").write_bytes(data)
    cli.ok("write-stdin", run_id, stdin=b"piped\n")
    assert cli.ok("write-stdin", "--json", run_id[:8], stdin=b"").document["run_id"] == run_id
    done = cli.ok("write-stdin", "--json", run_id, str(tmp_path / "data"), "--eof").document
    validate("write-stdin", done)
    assert (done["run_id"], done["bytes"], done["eof"]) == (run_id, len(data), True)
    assert cli("wait", run_id).code == 0
    assert cli.ok("logs", "--raw", run_id).raw == b"piped\n" + data


def test_write_to_a_stdin_that_is_not_open(cli: Cli) -> None:
    run_id = cli.start("--", "sleep", "3131")
    refused = cli("write-stdin", run_id, stdin=b"x")
    assert refused.code == 5
    assert_one_error_line(refused, "STDIN_CLOSED")
    nothing = cli("write-stdin", run_id, stdin=b"")
    assert nothing.code == 5
    assert_one_error_line(nothing, "STDIN_CLOSED")
    missing = cli("write-stdin", run_id, "/no/such/file")
    assert missing.code == 2
    unknown = cli("write-stdin", "nosuchrun", stdin=b"")
    assert unknown.code == 3
    assert_one_error_line(unknown, "UNKNOWN_RUN")
    cli.ok("stop", run_id)


def test_unknown_then_resolved(cli: Cli) -> None:
    run_id = cli.start("--", "sh", "-c", "sleep 3131")
    form = cli.inspect(run_id)
    os.kill(form["worker"]["pid"], signal.SIGKILL)
    eventually(lambda: cli.inspect(run_id)["state"] == "quarantined")
    lost = cli("wait", run_id)
    assert lost.code == 6
    assert lost.stderr.startswith("error: OUTCOME_UNKNOWN: ")
    left = cli("attach", run_id)  # which ends, since nothing more will come
    assert left.code == 0
    assert f"{run_id} is quarantined (program_alive)" in left.stderr
    typed = cli("wait", "--json", run_id)
    assert typed.document["run_id"] == run_id
    assert typed.error["code"] == "OUTCOME_UNKNOWN"
    settled = cli.ok("resolve", "--json", run_id, "--kill", "--note", "for the test").document
    validate("inspect", settled)
    assert settled["resolution"]["note"] == "for the test"
    assert not running(form["program"]["pid"])
    assert cli.inspect(run_id)["outcome"] is None
    unsure = cli("stop", run_id)
    assert unsure.code == 1
    assert "may still be alive" in unsure.stdout
    assert cli("stop", "--json", run_id).document["confirmed"] is False


def test_resolve_of_a_finished_run_is_refused(cli: Cli) -> None:
    run_id = cli.start("--", "true")
    cli("wait", run_id)
    refused = cli("resolve", run_id, "--accept")
    assert refused.code == 5
    assert_one_error_line(refused, "NOT_RESOLVABLE")


def test_reconcile(cli: Cli) -> None:
    run_id = cli.start("--", "true")
    cli("wait", run_id)
    form = cli.ok("reconcile", "--json").document
    assert form["judged"] >= 0
    assert cli.ok("reconcile").stdout.split() == ["judged", "0", "changed", "none"]


def test_a_lost_journal_refuses_starts_until_recovered(cli: Cli) -> None:
    run_id = cli.start("--request-id", "kept", "--", "sh", "-c", "echo kept; exit 3")
    assert cli("wait", run_id).code == 3
    for name in ("journal.db", "journal.db-wal", "journal.db-shm"):
        (cli.state_dir / name).unlink(missing_ok=True)
    refused = cli("start", "--", "true")
    assert refused.code == 5
    assert_one_error_line(refused, "JOURNAL_MISSING")
    sick = cli("doctor", "--json")
    assert sick.code == 1
    assert sick.document["healthy"] is False
    assert cli.ok("logs", run_id).stdout == "kept\n"
    assert cli.ok("recover", "--json").document["schema"]
    again = cli.ok("start", "--json", "--request-id", "kept", "--", "sh", "-c", "echo kept; exit 3").document
    assert (again["run_id"], again["admission"]) == (run_id, "existing")


def test_doctor(cli: Cli) -> None:
    empty = cli.ok("doctor", "--json").document
    assert empty["healthy"] is True
    assert os.listdir(cli.state_dir) == []
    cli.start("--", "true")
    names = {check["name"] for check in cli.ok("doctor", "--json").document["checks"]}
    assert {"state directory", "owner", "file system", "free space", "journal", "boot id", "cgroup"} <= names
    assert {"pidfd", "OFD locks", "subreaper"} <= names


def test_a_state_directory_open_to_others_is_refused(cli: Cli) -> None:
    cli.state_dir.chmod(0o755)
    for words in (["start", "--", "true"], ["list"], ["run", "--", "true"]):
        refused = cli(*words)
        assert (refused.code, refused.stdout) == (5, "")
        assert_one_error_line(refused, "STATE_DIR_REFUSED")
        assert "chmod 700" in refused.stderr
    sick = cli("doctor")
    assert sick.code == 1
    assert "chmod 700" in sick.stdout
    assert "Traceback" not in sick.stderr
