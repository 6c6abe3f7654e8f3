"""supervisord: programs from a configuration file, over its XML-RPC socket."""

from __future__ import annotations

import queue
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any
from xmlrpc.client import ServerProxy

from . import harness

_POLL = 0.001
_HEAD = """[unix_http_server]
file={socket}
[supervisord]
nodaemon=true
logfile={directory}/supervisord.log
pidfile={directory}/supervisord.pid
childlogdir={directory}
[rpcinterface:supervisor]
supervisor.rpcinterface_factory = supervisor.rpcinterface:make_main_rpcinterface
"""
_PROGRAM = """[program:{name}]
command={command}
autostart=false
autorestart=false
startsecs=0
stdout_logfile={directory}/{name}.out
stdout_logfile_maxbytes=0
stderr_logfile=NONE
"""


class Peer(harness.Peer):
    NOTE = "its states are asked for every millisecond: it tells nobody by itself without a listener"

    def version(self) -> str:
        return version("supervisor")

    def open(self, commands: Mapping[tuple[str, ...], int]) -> None:
        self._socket = f"{self.directory}/s"
        self._free: dict[tuple[str, ...], queue.SimpleQueue[str]] = {}
        text = _HEAD.format(socket=self._socket, directory=self.directory)
        for number, (argv, copies) in enumerate(commands.items()):
            self._free[argv] = queue.SimpleQueue()
            for copy in range(copies):
                name = f"p{number}c{copy}"
                command = " ".join(f'"{word}"' for word in argv)
                text += _PROGRAM.format(name=name, command=command, directory=self.directory)
                self._free[argv].put(name)
        config = self.directory / "supervisord.conf"
        config.write_text(text)
        daemon = [sys.executable, "-m", "supervisor.supervisord", "-c", str(config)]
        self._daemon = subprocess.Popen(daemon, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self._wait_until_it_answers()

    def _wait_until_it_answers(self) -> None:
        end = time.monotonic() + 10
        while True:
            try:
                self._server().supervisor.getState()
                return
            except OSError:
                if time.monotonic() > end or self._daemon.poll() is not None:
                    raise
                time.sleep(0.02)

    def _server(self) -> Any:
        from supervisor.xmlrpc import SupervisorTransport

        # A connection of its own for each call's thread: the transport is not shareable.
        return ServerProxy(
            "http://localhost", transport=SupervisorTransport(None, None, f"unix://{self._socket}")
        )

    def close(self) -> None:
        self._daemon.kill()
        self._daemon.wait()

    def start(self, argv: Sequence[str]) -> tuple[tuple[str, ...], str, Any]:
        key = tuple(argv)
        name = self._free[key].get()
        server = self._server()
        server.supervisor.startProcess(name, False)
        return key, name, server

    def wait(self, job: tuple[tuple[str, ...], str, Any]) -> int:
        key, name, server = job
        while (info := server.supervisor.getProcessInfo(name))["statename"] != "EXITED":
            time.sleep(_POLL)
        self._free[key].put(name)
        return int(info["exitstatus"])
