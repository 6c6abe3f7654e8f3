"""A run whose lifetime is a scope ends with the process that asked for it, and with nothing else."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from durable_supervisor import Command, ErrorCode, Observer, RunState, RunView, Supervisor, SupervisorError
from tests.contract.hosts import HostScript, host, refused
from tests.contract.runs import Marker, appear, gone, state_of
from tests.support import eventually

STARTS = """
async with Supervisor.open(STATE) as sup:
    run = await sup.start(Command(argv={argv!r}), lifetime="scope", limits=Limits(grace=5){more})
    report(run=run.id, pid=os.getpid())
    await stay()
"""


def starting(argv: list[str], more: str = "") -> str:
    return STARTS.format(argv=argv, more=more)


async def ended(state_dir: Path, run_id: str) -> RunView:
    async with Observer.open(state_dir) as seen:
        return await seen.wait(run_id, timeout=20)


def stop_of(seen: RunView) -> dict[str, Any]:
    assert seen.receipt is not None
    found = seen.receipt["stop"]
    assert isinstance(found, dict)
    return found


async def test_the_host_is_killed(state_dir: Path, tmp_path: Path, marker: Marker) -> None:
    argv = ["sh", "-c", f"sleep {marker} & setsid sleep {marker} & wait"]
    with HostScript(starting(argv), state_dir, tmp_path) as script:
        run = script.facts()["run"]
        appear(marker, 2)
    seen = await ended(state_dir, run)
    assert seen.outcome is not None
    assert seen.outcome.kind == "cancelled"
    assert (stop_of(seen)["reason"], stop_of(seen)["grace"]) == ("host_gone", 5.0)
    assert seen.lifetime == "scope"
    gone(marker)


async def test_a_detached_run_outlives_it(state_dir: Path, tmp_path: Path, marker: Marker) -> None:
    code = starting(["sleep", str(marker)]).replace('"scope"', '"detached"')
    with HostScript(code, state_dir, tmp_path) as script:
        run = script.facts()["run"]
    async with Supervisor.open(state_dir) as sup:
        assert (await sup.inspect(run)).state is RunState.RUNNING
        await sup.stop(run, grace=0)
    gone(marker)


SERVES = """
from durable_supervisor.server.server import Server
async with Supervisor.open(STATE) as sup:
    server = Server(sup)
    await server.start()
    report(pid=os.getpid())
    await stay()
"""
ASKS = """
from durable_supervisor.client.aio import AsyncClient
async with AsyncClient.connect(STATE) as client:
    run = await client.start(Command(argv={argv!r}), lifetime="scope", limits=Limits(grace=5))
    report(run=run.id, pid=os.getpid())
    await stay()
"""


async def test_over_the_socket_the_host_is_whoever_asks(
    state_dir: Path, tmp_path: Path, marker: Marker
) -> None:
    """Its end counts; the service's does not."""
    with HostScript(SERVES, state_dir, tmp_path) as service:
        service.facts()
        with HostScript(ASKS.format(argv=["sleep", str(marker)]), state_dir, tmp_path) as client:
            run = client.facts()["run"]
            service.kill()
            async with Observer.open(state_dir) as seen:
                with pytest.raises(SupervisorError) as still:
                    await seen.wait(run, timeout=0.3)
            assert still.value.code is ErrorCode.WAIT_TIMEOUT
            appear(marker, 1)
    assert stop_of(await ended(state_dir, run))["reason"] == "host_gone"
    gone(marker)
