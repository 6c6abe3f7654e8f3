"""What the service manager is told, over a real datagram socket."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from durable_supervisor import ErrorCode, SupervisorError
from durable_supervisor.server.daemon.notify import Notifier, keep_pulse
from tests.support import PATIENCE, eventually_async


@pytest.fixture(params=["path", "abstract"])
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[socket.socket, str]]:
    """A socket as systemd has one, and what it says in ``$NOTIFY_SOCKET``."""
    end = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    end.settimeout(PATIENCE)
    name = f"@dsup-test-{os.urandom(8).hex()}" if request.param == "abstract" else f"{tmp_path}/notify"
    end.bind(name.replace("@", "\0", 1) if request.param == "abstract" else name)
    yield end, name
    end.close()


def test_each_word_is_one_datagram(manager: tuple[socket.socket, str]) -> None:
    end, name = manager
    environ = {"NOTIFY_SOCKET": name, "WATCHDOG_USEC": "3000000", "WATCHDOG_PID": "42", "PATH": "/bin"}
    notifier = Notifier(environ, pid=42)
    assert environ == {"PATH": "/bin"}, "what the service starts must not speak for it"
    assert notifier.watchdog_seconds == 3.0
    notifier.ready("listening on /x")
    notifier.alive()
    notifier.stopping("draining")
    assert [end.recv(999) for _ in range(3)] == [
        b"READY=1\nSTATUS=listening on /x",
        b"WATCHDOG=1",
        b"STOPPING=1\nSTATUS=draining",
    ]


@pytest.mark.parametrize(
    ("environ", "seconds"),
    [
        ({}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
        ({"WATCHDOG_USEC": "500000"}, 0.5),
        ({"WATCHDOG_USEC": "500000", "WATCHDOG_PID": "41"}, None),
    ],
)
def test_only_a_watchdog_of_this_process_counts(environ: dict[str, str], seconds: float | None) -> None:
    assert Notifier(dict(environ), pid=42).watchdog_seconds == seconds


@pytest.mark.parametrize("name", ["", "vsock:2:1234", "/nowhere/at/all", "relative"])
def test_without_a_manager_nothing_happens(name: str) -> None:
    Notifier({"NOTIFY_SOCKET": name}, pid=1).ready("up")


async def test_the_pulse_is_told_while_the_journal_answers(manager: tuple[socket.socket, str]) -> None:
    end, name = manager
    silent, asked = asyncio.Event(), 0

    async def answers() -> None:
        nonlocal asked
        asked += 1
        if asked == 2:
            raise SupervisorError(ErrorCode.BUSY, "somebody else's lock, or a full disk", retryable=True)
        if asked > 3:
            await silent.wait()

    notifier = Notifier({"NOTIFY_SOCKET": name, "WATCHDOG_USEC": "20000"}, pid=1)
    pulse = asyncio.create_task(keep_pulse(notifier, answers))
    for _ in range(3):
        assert await asyncio.to_thread(end.recv, 999) == b"WATCHDOG=1"
    await eventually_async(lambda: asked == 4)
    end.setblocking(False)
    with pytest.raises(BlockingIOError):
        end.recv(999)  # it was asked, it is silent: nothing is told
    pulse.cancel()


async def test_the_pulse_ends_with_a_journal_that_does_not_work() -> None:
    async def answers() -> None:
        raise SupervisorError(ErrorCode.SUPERVISOR_CLOSED, "no")

    with pytest.raises(SupervisorError, match="SUPERVISOR_CLOSED"):
        await keep_pulse(Notifier({}, pid=1), answers)
