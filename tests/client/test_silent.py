"""A service that is silent because it works, and one that is silent because it is stopped: SIGSTOP."""

from __future__ import annotations

import asyncio
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from durable_supervisor import Command, ErrorCode
from durable_supervisor.client.info import INFO
from tests.client.faces import Kind
from tests.contract.hosts import refused
from tests.service.daemons import Service
from tests.support import PATIENCE, eventually_async

_BOUND = 0.3  # seconds, instead of half a minute, until it is asked whether it is there
_ANSWER = 5.0  # for that to be answered: one that lives may wait for a processor first


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("durable_supervisor.client.calls.ANSWER_SECONDS", _BOUND)
    greeting = replace(INFO, request=replace(INFO.request, silence=_ANSWER))
    monkeypatch.setattr("durable_supervisor.client.connections.INFO", greeting)


async def test_a_call_without_a_bound_waits_for_a_service_that_is_alive_and_for_no_other(
    kind: Kind, state_dir: Path
) -> None:
    stubborn = ["sh", "-c", "trap : TERM; echo ready; while :; do sleep 1; done"]
    with Service(state_dir) as service:
        face = await kind.connect(state_dir)
        run = await face.call("start", Command(argv=stubborn))

        async def ready() -> bool:
            page = await face.call("events", run.id, kinds=["output"])
            return any(event.text == "ready\n" for event in page.events)

        await eventually_async(ready)
        stopping = asyncio.ensure_future(face.call("stop", run.id, grace=3600))
        await asyncio.sleep(4 * _BOUND)  # the silence is what is tested
        assert not stopping.done(), "it asks whether the service is there, and waits on"
        service.process.send_signal(signal.SIGSTOP)
        async with refused(ErrorCode.SUBMISSION_INDETERMINATE) as caught:
            await asyncio.wait_for(stopping, PATIENCE)
        assert "silent" in caught().message
        service.process.send_signal(signal.SIGCONT)
        await face.call("stop", run.id, grace=0)
        await face.close()
