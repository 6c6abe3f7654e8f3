"""The host's side of the network tests: somebody listens on every kind of socket, and counts who comes."""

from __future__ import annotations

import os
import select
import socket
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

HAS_IPV6 = Path("/proc/net/if_inet6").exists()


class Listeners:
    """One of each kind, by name.  ``arguments`` are those of the hostile program ``network``."""

    def __init__(self, stack: ExitStack) -> None:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="ds-"))  # a short path
        self.abstract = f"ds-hostile-{os.getpid()}-{os.urandom(4).hex()}"
        self.stream_path, self.datagram_path = f"{folder}/stream", f"{folder}/datagram"
        self.sockets: dict[str, socket.socket] = {}
        self._open(stack, "tcp4", socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 0))
        if HAS_IPV6:
            self._open(stack, "tcp6", socket.AF_INET6, socket.SOCK_STREAM, ("::1", 0))
        self._open(stack, "udp4", socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", 0))
        self._open(stack, "unix_stream", socket.AF_UNIX, socket.SOCK_STREAM, self.stream_path)
        self._open(stack, "unix_datagram", socket.AF_UNIX, socket.SOCK_DGRAM, self.datagram_path)
        self._open(stack, "unix_abstract", socket.AF_UNIX, socket.SOCK_STREAM, "\0" + self.abstract)

    def _open(self, stack: ExitStack, name: str, family: int, kind: int, address: object) -> None:
        one = stack.enter_context(socket.socket(family, kind))
        one.bind(address)  # type: ignore[arg-type]
        if kind == socket.SOCK_STREAM:
            one.listen()
        self.sockets[name] = one

    def port(self, name: str) -> str:
        return str(self.sockets[name].getsockname()[1])

    @property
    def arguments(self) -> list[str]:
        ports = [self.port(name) for name in ("tcp4", "tcp6" if HAS_IPV6 else "tcp4", "udp4")]
        return [*ports, self.stream_path, self.datagram_path, self.abstract]

    def reached(self) -> set[str]:
        """Those that somebody has connected or sent to by now."""
        ready, _, _ = select.select(self.sockets.values(), (), (), 0)
        return {name for name, one in self.sockets.items() if one in ready}


@contextmanager
def listening() -> Iterator[Listeners]:
    with ExitStack() as stack:
        yield Listeners(stack)
