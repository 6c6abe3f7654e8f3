"""Somebody who talks to a worker's socket without the product's own client."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from pathlib import Path

from durable_supervisor.model.run import Run
from durable_supervisor.process.channel import FrameParser, encode_frame
from tests.contract.runs import Marker, Runs, gone
from tests.support import PATIENCE, eventually_async


class Peer:
    """A blocking client of the socket, which sends whatever it is told to."""

    def __init__(self, path: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(PATIENCE)
        directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
        try:
            self.socket.connect(f"/proc/self/fd/{directory}/{path.name}")
        except OSError:
            self.socket.close()
            raise
        finally:
            os.close(directory)
        self.parser = FrameParser()
        self.frames: list[dict[str, object]] = []

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def answer(self) -> dict[str, object] | None:
        """The next frame; None when the worker has hung up."""
        while not self.frames:
            try:
                data = self.socket.recv(65536)
            except ConnectionResetError:
                return None
            if not data:
                return None
            self.frames += [message for message, _ in self.parser.feed(data)]
        return self.frames.pop(0)

    def ask(self, message: dict[str, object], blob: bytes = b"") -> dict[str, object] | None:
        self.send(encode_frame(message, blob))
        return self.answer()

    def close(self) -> None:
        self.socket.close()


async def long_run(runs: Runs, marker: Marker, script: str = "") -> tuple[Run, Path]:
    """A run, and its socket once somebody listens there."""
    run = await runs.sh(f"{script or ':'}; echo ready; sleep {marker}; :")
    await runs.printed(run, b"ready")
    return run, await socket_of(runs, run)


async def socket_of(runs: Runs, run: Run) -> Path:
    def listening() -> list[Path]:
        paths = list(runs.state_dir.rglob(f"{run.id}.sock"))
        return paths if paths and served(paths[0]) else []

    found: list[Path] = await eventually_async(listening)
    return found[0]


def served(path: Path) -> bool:
    """Made, listening, and answering."""
    try:
        peer = Peer(path)
    except OSError:
        return False
    answer = peer.ask({"op": "ping"})
    peer.close()
    return answer is not None


def frame(text: bytes, blob: bytes = b"") -> bytes:
    return struct.pack("<II", len(text), len(blob)) + text + blob


async def alive(runs: Runs, run: Run, path: Path) -> None:
    """The worker still serves others."""
    peer = Peer(path)
    answer = await asyncio.to_thread(peer.ask, {"op": "ping"})
    peer.close()
    assert answer is not None
    assert answer["type"] == "pong"
    assert (await runs.sup.inspect(run.id)).state.value == "running"


async def end(runs: Runs, run: Run, marker: Marker) -> None:
    await runs.sup.stop(run.id)
    gone(marker)
    assert (await runs.receipt(run))["outcome"]["kind"] == "cancelled"
