"""Started inside somebody's systemd unit: its restart ends all of its cgroup, and the start says so."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from durable_supervisor.supervisor.admission.host import service_of
from tests.cli.helpers import COMMAND, Cli, environment


@pytest.mark.parametrize(
    ("paths", "unit"),
    [
        (["/"], None),
        ([], None),
        (["/system.slice/app.service"], "app.service"),
        (["/system.slice/app.service/workers"], "app.service"),
        (["/user.slice/user-1000.slice/session-3.scope"], None),
        (["/user.slice/user-1000.slice/user@1000.service/tmux-spawn-1.scope"], None),
        (["/user.slice/user-1000.slice/user@1000.service/app.slice/mine.service"], "mine.service"),
        (["/", "/system.slice/old.service", "/"], "old.service"),
    ],
)
def test_the_service_of_a_cgroup(paths: list[str], unit: str | None) -> None:
    assert service_of(paths) == unit


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to show one process another /proc/self/cgroup")
@pytest.mark.parametrize(
    ("cgroup", "survives"),
    [("0::/system.slice/app.service/sub", False), ("0::/user.slice/user-0.slice/session-1.scope", True)],
)
def test_a_start_says_whether_it_survives(cli: Cli, tmp_path: Path, cgroup: str, survives: bool) -> None:
    (tmp_path / "cgroup").write_text(cgroup + "\n")
    script = f"mount --bind '{tmp_path}/cgroup' /proc/$$/cgroup && exec \"$@\""

    def inside(*words: str) -> str:
        done = subprocess.run(
            ["unshare", "--mount", "sh", "-c", script, "sh", *COMMAND, *words],
            env=environment(cli.state_dir),
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    started = json.loads(inside("start", "--json", "--", "true"))
    assert started["survives_unit_restart"] is survives
    assert cli.inspect(started["run_id"])["survives_unit_restart"] is survives, (
        "a fact of the run from now on"
    )
    [check] = [one for one in json.loads(inside("doctor", "--json"))["checks"] if one["name"] == "cgroup"]
    assert check["status"] == ("ok" if survives else "note")
    assert ("app.service" in check["detail"]) is not survives
    assert ("KillMode=process" in check["hint"]) is not survives
