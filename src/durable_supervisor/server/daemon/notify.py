"""Telling the service manager how it goes: sd_notify(3), without its library."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, MutableMapping

from ...model.errors import ErrorCode, SupervisorError
from ...supervisor.loop.logs import logger

SOCKET = "NOTIFY_SOCKET"
WATCHDOG_USEC = "WATCHDOG_USEC"
WATCHDOG_PID = "WATCHDOG_PID"
_UNWATCHED_SECONDS = 60.0  # where no manager says how often


class Notifier:
    """Sends state lines to ``$NOTIFY_SOCKET``; without one, or when nobody listens, to nobody.

    The variables are taken out of ``environ``: what this process starts must not speak for it.
    """

    def __init__(self, environ: MutableMapping[str, str], pid: int) -> None:
        self._address = _address(environ.pop(SOCKET, ""))
        self.watchdog_seconds = _watchdog(environ.pop(WATCHDOG_USEC, ""), environ.pop(WATCHDOG_PID, ""), pid)

    def ready(self, status: str) -> None:
        """From now on what depends on us may start."""
        self._send(f"READY=1\nSTATUS={status}")

    def stopping(self, status: str) -> None:
        """The end has begun."""
        self._send(f"STOPPING=1\nSTATUS={status}")

    def alive(self) -> None:
        """Still at work; due within every ``watchdog_seconds``."""
        self._send("WATCHDOG=1")

    def _send(self, message: str) -> None:
        if not self._address:
            return
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
            sender.setblocking(False)  # a manager that does not read must not hold us up
            try:
                sender.sendto(message.encode("utf-8", "backslashreplace"), self._address)
            except OSError:
                return  # as sd_notify(3) advises: the service works as well without its manager


async def keep_pulse(notifier: Notifier, answers: Callable[[], Awaitable[object]]) -> None:
    """Ask ``answers``, again and again, and tell the manager each time that it has answered.

    While it is silent nothing is said, and after a whole watchdog interval the manager
    restarts us; runs do not notice.  An error is an answer, too: a restart frees no lock of
    somebody else's, and no disk.  Only ``SUPERVISOR_CLOSED`` is raised: nothing works any more.
    """
    loop, pause = asyncio.get_running_loop(), (notifier.watchdog_seconds or _UNWATCHED_SECONDS) / 2
    while True:
        asked = loop.time()
        try:
            await answers()
        except SupervisorError as error:
            if error.code is ErrorCode.SUPERVISOR_CLOSED:
                raise
            logger().warning("journal_unwell", code=error.code.value)
        notifier.alive()
        await asyncio.sleep(max(0.0, pause - (loop.time() - asked)))


def _address(name: str) -> str:
    """A path, or ``@name`` for the abstract namespace (unix(7)); any other kind is not for us."""
    if name.startswith("@"):
        return "\0" + name[1:]
    return name if name.startswith("/") else ""


def _watchdog(usec: str, pid: str, own_pid: int) -> float | None:
    """Seconds; None where none is wanted, or of another process (sd_watchdog_enabled(3))."""
    if not usec.isdecimal() or int(usec) == 0 or (pid and pid != str(own_pid)):
        return None
    return int(usec) / 1_000_000
