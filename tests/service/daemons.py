"""Real services: processes of their own, with real sockets and signals."""

from __future__ import annotations

import http.client
import json
import os
import select
import signal
import socket
import subprocess
import time
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tests.cli.helpers import COMMAND, SOURCE, environment
from tests.support import PATIENCE

ROOT_LEAVE = ("--allow-root",) if os.geteuid() == 0 else ()


class Service:
    """One ``serve`` process; its log goes to a file beside the state directory."""

    def __init__(
        self,
        state_dir: Path,
        *options: str,
        source: Path = SOURCE,
        prefix: tuple[str, ...] = (),
        leave: tuple[str, ...] = ROOT_LEAVE,
        **env: str,
    ) -> None:
        self.state_dir = state_dir
        self.log_path = state_dir.parent / f"service-{os.urandom(4).hex()}.log"
        words = [*prefix, *COMMAND, "serve", "--json", "--log-level", "debug", *leave, *options]
        with open(self.log_path, "wb") as log:
            self.process = subprocess.Popen(
                words,
                env=environment(state_dir, **{"PYTHONPATH": str(source), **env}),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd="/",
            )
        self.facts: dict[str, Any] = {}

    def ready(self) -> Service:
        """Wait for its one document."""
        assert self.process.stdout is not None
        readable, _, _ = select.select([self.process.stdout], [], [], PATIENCE)
        line = self.process.stdout.readline() if readable else b""
        assert line, self.log()
        self.facts = json.loads(line)
        return self

    @property
    def socket(self) -> str:
        return str(self.facts["socket"])

    def ask(
        self, method: str, path: str, body: Mapping[str, object] | None = None, content: bytes | None = None
    ) -> tuple[int, Any]:
        """One request: status and document."""
        return ask(self.socket, method, path, body, content)

    def start(self, *argv: str, **more: object) -> str:
        """Start a program; its run id."""
        status, form = self.ask("POST", "/v1/start", {"command": {"argv": list(argv)}, **more})
        assert status in (200, 201), form
        return str(form["run_id"])

    def inspect(self, run_id: str) -> dict[str, Any]:
        status, form = self.ask("GET", f"/v1/runs/{run_id}/inspect")
        assert status == 200, form
        assert isinstance(form, dict)
        return form

    def end(self, signo: int = signal.SIGTERM) -> int:
        """Signal it, and wait for its exit status."""
        self.process.send_signal(signo)
        return self.process.wait(PATIENCE)

    def log(self) -> str:
        return self.log_path.read_text(errors="replace")

    def entries(self, event: str | None = None) -> list[dict[str, Any]]:
        """Its log, line by line; each is one JSON object.  The last one may still be being written."""
        found = [json.loads(line) for line in self.log().rpartition("\n")[0].splitlines()]
        return [entry for entry in found if event in (None, entry["event"])]

    def __enter__(self) -> Service:
        return self.ready()

    def __exit__(self, *exc: object) -> None:
        self.kill()

    def kill(self) -> None:
        """The end of it, whatever state it is in."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()


def ask(
    path: str,
    method: str,
    target: str,
    body: Mapping[str, object] | None = None,
    content: bytes | None = None,
    timeout: float = PATIENCE,
) -> tuple[int, Any]:
    """One HTTP request over a Unix socket, with a document or bytes: status, and the answer."""
    kind = "application/octet-stream" if body is None else "application/json"
    folder, name = os.path.split(path)
    directory = os.open(folder, os.O_PATH)  # its path may be longer than sun_path
    connection = http.client.HTTPConnection("localhost")
    try:
        with socket.socket(socket.AF_UNIX) as end:
            end.settimeout(timeout)
            end.connect(f"/proc/self/fd/{directory}/{name}")
            connection.sock = end
            headers = {"Connection": "close"}
            if body is not None or content is not None:
                headers["Content-Type"] = kind
            connection.request(method, target, content if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            data = answer.read()
    finally:
        os.close(directory)
    if "json" in (answer.getheader("Content-Type") or ""):
        return answer.status, json.loads(data)
    return answer.status, data.decode()


def tree_state(path: Path) -> dict[str, tuple[int, int, int]]:
    """Every file below: inode, size and time of its last change; equal only if nothing was written.

    Of run logs, which their workers write, just the inode.  Nothing of what the owner makes when it has a
    moment: room in the -wal file, of which the content before it is compared.
    """
    found = {}
    for one in sorted(path.rglob("*")):
        status = one.lstat()
        changes = status.st_size, status.st_mtime_ns
        if one.suffix == ".log":
            changes = 0, 0
        elif one.name.endswith("-wal"):
            content = one.read_bytes().rstrip(b"\0")
            changes = len(content), zlib.crc32(content)
        found[str(one.relative_to(path))] = (status.st_ino, *changes)
    return found


def until(condition: Callable[[], Any], what: str) -> Any:
    """Poll; the deadline is generous."""
    deadline = time.monotonic() + PATIENCE
    while not (value := condition()):
        assert time.monotonic() < deadline, what
        time.sleep(0.02)
    return value
