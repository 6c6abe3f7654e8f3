"""The doctor's word on services, units, clocks and workers, each with a next step where one is due."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.cli.helpers import COMMAND, Cli, environment
from tests.service.conftest import Serve


@pytest.fixture
def cli(state_dir: Path) -> Cli:
    return Cli(state_dir)


def checks(cli: Cli, code: int = 0) -> dict[str, dict[str, Any]]:
    result = cli("doctor", "--json")
    assert result.code == code, result.stderr
    return {check["name"]: check for check in result.document["checks"]}


def test_a_machine_that_is_well(cli: Cli) -> None:
    found = checks(cli)
    axes = {"tree", "network", "memory", "open files"}
    assert {"clock", "workers", "socket", "lingering", *axes} <= found.keys()
    assert found["workers"]["status"] == "ok"
    assert found["clock"]["status"] == "ok"
    assert found["tree"]["detail"] in ("policy: full (cgroup.kill)", "policy: full (subreaper)")
    assert "no service" in found["socket"]["detail"]
    assert all(check["hint"] for check in found.values() if check["status"] != "ok")


def test_a_service_that_lives_hangs_and_dies(serve: Serve, cli: Cli) -> None:
    service = serve()
    found = checks(cli)
    assert found["socket"]["status"] == "ok"
    assert f"process {service.process.pid}" in found["socket"]["detail"]
    assert "mode 0600" in found["socket"]["detail"]
    assert found["unit"]["status"] == "ok"
    service.process.send_signal(signal.SIGSTOP)
    hangs = checks(cli, code=1)["socket"]
    assert (hangs["status"], "no answer" in hangs["detail"]) == ("bad", True)
    service.end(signal.SIGKILL)
    dead = checks(cli)["socket"]
    assert (dead["status"], "dead" in dead["detail"]) == ("ok", True)


@pytest.mark.parametrize("what", ["a file", "another server"])
def test_something_else_at_the_sockets_place(cli: Cli, what: str) -> None:
    path = cli.state_dir / "supervisor.sock"
    with socket.socket(socket.AF_UNIX) as end:
        if what == "a file":
            path.touch()
        else:
            end.bind(str(path))
            end.listen()
        found = checks(cli, code=1)["socket"]
    assert found["status"] == "bad"
    assert found["hint"]


def test_a_pointed_to_socket_is_looked_at(serve: Serve, cli: Cli, tmp_path: Path) -> None:
    serve("--socket", str(tmp_path / "elsewhere.sock"), "--socket-mode", "0660")
    detail = checks(cli)["socket"]["detail"]
    assert "elsewhere.sock" in detail
    assert "mode 0660" in detail


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to show a process another /proc/PID/cgroup")
@pytest.mark.parametrize(("spared", "status"), [(True, "ok"), (False, "note")])
def test_the_unit_of_the_owner(cli: Cli, serve: Serve, tmp_path: Path, spared: bool, status: str) -> None:
    """An own unit that names itself spares the runs; any other is told of."""
    env = {"DURABLE_SUPERVISOR_UNIT": "durable-supervisor.service"} if spared else {}
    service = serve(**env)
    cgroup = tmp_path / "cgroup"
    cgroup.write_text("0::/user.slice/user@0.service/app.slice/durable-supervisor.service\n")
    script = f"mount --bind '{cgroup}' /proc/{service.process.pid}/cgroup && exec \"$@\""
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", script, "sh", *COMMAND, "doctor"],
        env=environment(cli.state_dir),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    [line] = [line for line in done.stdout.splitlines() if line[6:].startswith("unit ")]
    assert line.split()[0] == status
    assert ("KillMode=process" in line) is not spared


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to show the service another /proc/self/cgroup")
def test_a_start_in_the_services_own_unit_survives_its_restart(serve: Serve, tmp_path: Path) -> None:
    """In any other it does not: `tests.cli.test_units`."""
    cgroup = tmp_path / "cgroup"
    cgroup.write_text("0::/system.slice/own.service\n")
    script = f"mount --bind '{cgroup}' /proc/$$/cgroup && exec \"$@\""
    prefix = ("unshare", "--mount", "sh", "-c", script, "sh")
    service = serve(prefix=prefix, DURABLE_SUPERVISOR_UNIT="own.service")
    _, form = service.ask("POST", "/v1/start", {"command": {"argv": ["true"]}})
    assert form["survives_unit_restart"] is True
