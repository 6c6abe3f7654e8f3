"""A policy and limits for the kernel on the command line, and what is told of them afterwards."""

from __future__ import annotations

import os
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from durable_supervisor import Limits, Policy, SupervisorError
from durable_supervisor.cli.output.fields import OPTIONS
from durable_supervisor.cli.starting import confined
from durable_supervisor.supervisor.policy.confinement import BY_POLICY, PRIVILEGED
from durable_supervisor.wire.documents import validate
from tests.cli.helpers import Cli, assert_one_error_line

ALL = [
    "--network", "none", "--grant", "/usr:execute", "--grant", ".:all", "--files-backend", "landlock",
    "--enforcement", "network=required", "--enforcement", "files=best-effort", "--memory", "512M",
    "--cpus", "0.5", "--cpu-time", "2m", "--processes", "64", "--open-files", "100", "--file-size", "1G",
    "--max-stdin", "1K",
]  # fmt: skip


def asked(cli: Cli, *words: str) -> dict[str, Any]:
    form = cli.ok("start", "--dry-run", "--json", *words, "--", "true").document
    validate("start-request", form)
    return form


def test_every_option_has_its_field(cli: Cli) -> None:
    form = asked(cli, *ALL)
    assert form["policy"] == {
        "network": "none",
        "filesystem": [{"path": "/usr", "access": "execute"}, {"path": str(Path.cwd()), "access": "all"}],
        "enforcement": {"files": "best_effort", "network": "required"},
        "files_backend": "landlock",
    }
    limits = {
        "max_memory_bytes": 512 << 20,
        "max_cpus": 0.5,
        "max_cpu_seconds": 120.0,
        "max_processes": 64,
        "max_open_files": 100,
        "max_file_bytes": 1 << 30,
        "max_stdin_bytes": 1024,
    }
    assert limits.items() <= form["limits"].items()
    text = cli.ok("start", "--dry-run", *ALL, "--", "true").stdout
    assert "network none; files /usr (execute), " in text
    assert "memory 512.0 MiB" in text


def test_without_them_there_is_no_policy(cli: Cli) -> None:
    form = asked(cli)
    assert form["policy"] is None
    assert not [name for name in form["limits"] if name.startswith("max_") and "std" not in name]
    assert asked(cli, "--enforcement", "required")["policy"]["enforcement"] == "required"


@pytest.mark.parametrize(
    ("word", "path", "access"),
    [
        ("/a", "/a", "read"),
        ("/a:write", "/a", "write"),
        ("/a:b", "/a:b", "read"),
        ("/a:b:all", "/a:b", "all"),
    ],
)
def test_a_grant_may_have_a_colon_in_its_path(cli: Cli, word: str, path: str, access: str) -> None:
    assert asked(cli, "--grant", word)["policy"]["filesystem"] == [{"path": path, "access": access}]


NAMES = (
    "network", "grant", "files_backend", "enforcement", "memory", "cpus", "cpu_time", "processes",
    "open_files", "file_size", "max_stdin",
)  # fmt: skip


@pytest.mark.parametrize(
    ("name", "word", "field"),
    [
        ("network", "some", "policy.network"),
        ("grant", [":read"], "policy.filesystem"),
        ("enforcement", ["sometimes"], "policy.enforcement"),
        ("enforcement", ["weather=required"], "policy.enforcement"),
        ("enforcement", ["required", "network=required"], "policy.enforcement"),
        ("files_backend", "landlock", "policy.files_backend"),
        ("memory", "much", "limits.max_memory_bytes"),
        ("memory", "1K", "limits.max_memory_bytes"),
        ("cpus", "0", "limits.max_cpus"),
        ("cpu_time", "soon", "limits.max_cpu_seconds"),
        ("processes", "-1", "limits.max_processes"),
        ("open_files", "2", "limits.max_open_files"),
    ],
)
def test_a_word_that_is_wrong_is_refused_by_its_field(name: str, word: object, field: str) -> None:
    words = dict.fromkeys(NAMES) | {name: word}
    with pytest.raises(SupervisorError) as caught:
        _ = confined.policy(words), Limits(**confined.limits(words))
    assert caught.value.details["field"] == field


def test_a_contradiction_is_refused_before_anything_is_touched(cli: Cli) -> None:
    result = cli("start", "--json", "--enforcement", "network=required", "--", "true")
    assert result.code == 2
    assert result.error["details"]["field"] == "policy.enforcement[network]"
    assert not cli.state_dir.joinpath("runs").exists()


def test_what_was_enforced_is_told_everywhere(cli: Cli, tmp_path: Path) -> None:
    words = ["--network", "none", "--open-files", "64", "--", "sh", "-c", "ulimit -n"]
    assert cli.ok("run", *words).stdout == "64\n"
    (run,) = cli.ok("list", "--json").document["runs"]
    form = cli.inspect(run["run_id"])
    assert form["receipt"]["enforcement"]["open_files"]["applied"] == "full"
    text = cli.ok("inspect", run["run_id"]).stdout
    assert "policy            network none; best effort" in text
    assert "held: open_files  full, by rlimit" in text
    assert "open_files full, by rlimit" in cli.ok("events", run["run_id"]).stdout
    bundle, page = tmp_path / "run.zip", tmp_path / "run.html"
    cli.ok("export", run["run_id"], "-o", str(bundle))
    cli.ok("report", str(bundle), "-o", str(page))
    assert "<dt>Enforced: open files</dt><dd>full, by rlimit</dd>" in page.read_text()
    assert "<dt>Policy</dt><dd>network none; best effort</dd>" in page.read_text()
    assert "held: open_files  full, by rlimit" in cli.ok("inspect", str(bundle)).stdout


@pytest.mark.skipif(os.geteuid() != 0, reason="only root's programs may raise their limits again")
def test_inspect_says_why_an_axis_is_partial_and_what_closes_it(cli: Cli) -> None:
    run_id = cli.start("--open-files", "64", "--", "true")
    cli.ok("wait", run_id)
    text = " ".join(cli.ok("inspect", run_id).stdout.split())
    assert f"held: open_files partial, by rlimit: {PRIVILEGED}: {BY_POLICY}" in text


def test_a_grant_that_is_missing_is_one_line(cli: Cli, tmp_path: Path) -> None:
    result = cli("start", "--grant", str(tmp_path / "missing"), "--", "true")
    assert result.code == 2
    assert_one_error_line(result, "INVALID_REQUEST")
    assert "--grant: grants" in result.stderr


def test_what_this_machine_can_do_is_a_table(cli: Cli) -> None:
    rows = [row.split() for row in cli.ok("capabilities").stdout.splitlines()]
    assert rows[0][:3] == ["AXIS", "ASKED", "BY"]
    assert {row[0] for row in rows} >= {"tree", "files", "network", "memory", "privileges"}


def test_a_word_that_is_no_access_is_told_as_such(cli: Cli) -> None:
    result = cli("start", "--grant", ".:rw", "--", "true")
    assert_one_error_line(result, "INVALID_REQUEST")
    assert "--grant: has an access other than read, execute, write, all" in result.stderr


def test_a_person_is_told_the_option_a_program_the_field(cli: Cli) -> None:
    words = ["--enforcement", "network=required", "--", "true"]
    assert "INVALID_REQUEST: --enforcement[network]: is given" in cli("start", *words).stderr
    assert "policy.enforcement[network]: is given" in cli("start", "--json", *words).error["message"]
    result = cli("start", "--timeout", "-1", "--", "true")
    assert_one_error_line(result, "INVALID_REQUEST")
    assert "--timeout: must be positive" in result.stderr
    assert "(see --help)" in result.stderr


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--memory", "50"], "--memory: must be at least 1 MiB (1048576 bytes) and at most 1 PiB (a "),
        (["--files-backend", "landlock"], "means nothing without a filesystem (give --grant)"),
        (["--secret-env", "NOT_SET_HERE"], "--secret-env[NOT_SET_HERE]: is not set in this environment ("),
        (["--label", "a b=c"], "--label: has a name outside"),
        (["--grant", "/usr", "--cwd", "/"], "--cwd: lies outside every grant (grant it, "),
        (["--completion", "x"], "--completion: must be 'leader' or 'tree' (see --help)"),
    ],
)  # fmt: skip
def test_errors_speak_of_options(cli: Cli, words: list[str], told: str) -> None:
    assert told in cli("start", *words, "--", "true").stderr


def test_every_bound_has_its_option(cli: Cli) -> None:
    names = [f"limits.{name}" for name in Limits.FIELDS]
    names += [f"policy.{one.name}" for one in fields(Policy) if one.init]
    assert [name for name in names if name not in OPTIONS] == []
    shown = cli.ok("start", "--help").stdout
    bounds = [option for field, option in OPTIONS.items() if field.startswith(("limits.", "policy."))]
    assert bounds
    assert [option for option in bounds if f"{option} " not in shown] == []
