"""A client that hangs up before its start was carried out, because the service stood still meanwhile."""

from __future__ import annotations

import json
import signal
from pathlib import Path

from tests.contract.runs import state_of
from tests.server.http import raw
from tests.service.daemons import Service
from tests.support import eventually

HEAD = "POST /v1/start HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n"


def start(request_id: str, lifetime: str) -> bytes:
    form = {"command": {"argv": ["true"]}, "request_id": request_id, "lifetime": lifetime}
    body = json.dumps(form).encode()
    return HEAD.format(len(body)).encode() + body


def stopped(service: Service) -> bool:
    return state_of(service.process.pid) == "T"


def runs_of(service: Service) -> dict[str, str]:
    _, form = service.ask("GET", "/v1/list")
    return {run["request_id"]: run["state"] for run in form["runs"]}


def test_a_scoped_start_whose_call_is_over_is_not_carried_out(state_dir: Path) -> None:
    """A detached one is: whoever sent it can ask for it again."""
    with Service(state_dir) as service:
        service.process.send_signal(signal.SIGSTOP)
        eventually(lambda: stopped(service))
        for lifetime in ("scope", "detached"):
            with raw(service.socket) as connection:
                connection.sendall(start(lifetime, lifetime))
        service.process.send_signal(signal.SIGCONT)
        eventually(lambda: "detached" in runs_of(service))
        assert set(runs_of(service)) == {"detached"}


def test_a_call_that_ends_between_admission_and_dispatch(state_dir: Path) -> None:
    with Service(state_dir, DURABLE_SUPERVISOR_FAILPOINTS="start.committed=pause") as service:
        with raw(service.socket) as connection:
            connection.sendall(start("over", "scope"))
            eventually(lambda: stopped(service))
        service.process.send_signal(signal.SIGCONT)
        eventually(lambda: runs_of(service) == {"over": "not_started"})
        with raw(service.socket) as connection:
            connection.sendall(start("over", "scope"))
            assert connection.recv(4096).startswith(b"HTTP/1.1 201 ")
        eventually(lambda: runs_of(service) == {"over": "finished"})
