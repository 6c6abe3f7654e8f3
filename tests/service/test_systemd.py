"""Our unit under a real systemd: restart, crash, hang and stop of the service harm no run.

``make systemd`` runs it: as root, with cgroup v2, in namespaces of its own.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from durable_supervisor.cli.service import units
from tests.service.daemons import ask, until
from tests.service.systemd import SYSTEMD, Systemd, booted, unified_cgroups

VARIABLE = "DURABLE_SUPERVISOR_TEST_SYSTEMD"

pytestmark = pytest.mark.skipif(
    not (
        os.environ.get(VARIABLE) == "1"
        and os.geteuid() == 0
        and os.path.exists(SYSTEMD)
        and unified_cgroups()
    ),
    reason=f"needs {VARIABLE}=1, root, systemd and cgroup v2",
)


@pytest.fixture
def systemd(state_dir: Path, tmp_path: Path) -> Iterator[Systemd]:
    unit = units.systemd_unit(str(state_dir), ["--allow-root"])
    with booted(tmp_path, unit, "WatchdogSec=2\nTimeoutAbortSec=1") as system:
        system.until(ActiveState="active", SubState="running")
        yield system


def test_whatever_happens_to_the_service_the_run_goes_on(systemd: Systemd, state_dir: Path) -> None:
    socket = str(state_dir / "supervisor.sock")

    def seen(run: str) -> tuple[str, int]:
        form = ask(socket, "GET", f"/v1/runs/{run}/inspect")[1]
        return form["state"], form["program"]["pid"]

    ticks = "i=0; while :; do i=$((i+1)); echo tick $i; sleep 0.1; done"
    _, form = ask(socket, "POST", "/v1/start", {"command": {"argv": ["sh", "-c", ticks]}})
    run = form["run_id"]
    assert form["survives_unit_restart"] is True
    first = seen(run)
    assert first[0] == "running"

    systemd.ctl("restart", "durable-supervisor")
    assert seen(run) == first

    systemd.ctl("kill", "--signal=KILL", "--kill-who=main", "durable-supervisor")
    systemd.until(NRestarts="1", ActiveState="active")
    assert seen(run) == first

    systemd.ctl("kill", "--signal=STOP", "--kill-who=main", "durable-supervisor")  # it hangs
    systemd.until(NRestarts="2", ActiveState="active")
    assert seen(run) == first

    systemd.ctl("stop", "durable-supervisor")
    assert systemd.show("ActiveState", "Result") == {"ActiveState": "inactive", "Result": "success"}
    systemd.ctl("start", "durable-supervisor")
    assert seen(run) == first
    stopped = ask(socket, "POST", f"/v1/runs/{run}/stop", {"grace": 5})[1]
    assert stopped["confirmed"]
    _, page = ask(socket, "GET", f"/v1/runs/{run}/events?limit=10000&kind=output")
    lines = "".join(event["text"] for event in page["events"]).split("\n")[:-1]
    assert lines == [f"tick {number}" for number in range(1, len(lines) + 1)], "each once, in order"
    until(lambda: systemd.show("ActiveState") == {"ActiveState": "active"}, "the service is fine")
