"""Somebody who talks to a worker's socket without the product's own client."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from durable_supervisor.process.channel import FrameParser, encode_frame


class Peer:
    """A blocking client of the socket, which sends whatever it is told to."""

    def __init__(self, path: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(10)
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
