"""Talk to a worker over its control socket, from any process of the same user."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Mapping

from ...model.errors import ErrorCode, Phase, SupervisorError
from ...model.identity import ProcessIdentity
from ...process.channel import FrameError, FrameParser, encode_frame
from ...process.short_path import short_path
from ...process.signals import signal_process
from ...runlog.paths import RunPaths

_ATTEMPT_SECONDS = 0.05


class Dial:
    """One connection to a worker."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._parser = FrameParser()
        self._frames: list[dict[str, object]] = []

    @classmethod
    async def connect(cls, paths: RunPaths) -> Dial | None:
        """None when nobody listens there."""
        folder, name = os.path.split(paths.socket)
        try:
            with short_path(folder) as place:
                return cls(*await asyncio.open_unix_connection(f"{place}/{name}"))
        except OSError:
            return None

    async def send(self, message: Mapping[str, object], blob: bytes = b"") -> None:
        """Raises OSError when the worker is gone."""
        self._writer.write(encode_frame(dict(message), blob))
        await self._writer.drain()

    async def receive(self) -> dict[str, object] | None:
        """The next frame; None once the worker has closed the connection."""
        while not self._frames:
            try:
                data = await self._reader.read(64 * 1024)
                if not data:
                    return None
                self._frames += [message for message, _ in self._parser.feed(data)]
            except (OSError, FrameError):
                return None
        return self._frames.pop(0)

    def close(self) -> None:
        self._writer.close()


async def dial_patiently(paths: RunPaths, worker: ProcessIdentity | None, seconds: float) -> Dial | None:
    """Connect, giving a worker time to make its socket, or to make it anew after it was deleted."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    pause, asked = 0.005, False
    while True:
        dial = await Dial.connect(paths)
        if dial is not None:
            return dial
        if loop.time() >= deadline:
            return None
        if pause >= _ATTEMPT_SECONDS and worker is not None and not asked:
            # On SIGUSR1 a worker looks whether its socket is still in place.
            asked = signal_process(worker, signal.SIGUSR1)
        await asyncio.sleep(min(pause, max(0.0, deadline - loop.time())))
        pause = min(pause * 2, _ATTEMPT_SECONDS)


def not_confirmed(run_id: str, what: str, seconds: float) -> SupervisorError:
    """The worker did not answer in time.  That is no evidence of its death."""
    return SupervisorError(
        ErrorCode.NOT_CONFIRMED,
        f"{what} of run {run_id} was not confirmed within {seconds:g} s; the worker may be stopped or busy",
        phase=Phase.CONTROL,
        retryable=True,
        hint="`inspect` shows its processes; try again, it is applied at most once per control id",
        details={"run_id": run_id},
    )
