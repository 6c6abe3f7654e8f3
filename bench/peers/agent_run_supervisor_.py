"""agent-run-supervisor: its daemon drives a fake ACP agent, whose prompt is the program to run."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from . import harness

_AGENT = Path(__file__).resolve().parent.parent / "programs" / "fake_agent.py"
_POLL = 0.002
_HASH = "sha256:" + "0" * 64
_AGENTS = """schema_version = 1
[agents.bench]
profile = "standard-native-acp-v1"
command = "{python}"
args = ["-I", "-S", "{agent}"]
mediation = "ask-privileged-tool-families-v1"
model_selector = "model"
effort_selector = "effort"
"""


class Peer(harness.Peer):
    DURABLE = "request; the exit with the daemon alive"
    NOTE = "a fake agent runs the program; its status is asked for every 2 ms"
    SLOW = True
    STREAMS = False
    IDLES = False
    _numbers = itertools.count()

    def version(self) -> str:
        return version("agent-run-supervisor")

    def open(self, commands: Mapping[tuple[str, ...], int]) -> None:
        agents = self.directory / "agents.toml"
        agents.write_text(_AGENTS.format(python=sys.executable, agent=_AGENT))
        self._workspace = self.directory / "workspace"
        self._workspace.mkdir()
        root = self.directory / "root"
        root.mkdir(mode=0o700)
        self._socket = self.directory / "s" / "arsd.sock"
        self._socket.parent.mkdir(mode=0o700)
        self._local = threading.local()
        self._log = (self.directory / "arsd.log").open("wb")
        argv = [
            sys.executable, "-m", "agent_run_supervisor.arsd", "--supervisor-root", str(root),
            "--socket", str(self._socket), "--agents-file", str(agents), "--max-concurrent-runs", "32",
            "--caller-mapping", f"{os.getuid()}:bench:bench:bench", "--max-connections", "64",
        ]  # fmt: skip
        self._daemon = subprocess.Popen(argv, stdout=self._log, stderr=self._log)
        self._wait_until_it_answers()

    def _wait_until_it_answers(self) -> None:
        end = time.monotonic() + 15
        while not self._socket.exists():
            if time.monotonic() > end or self._daemon.poll() is not None:
                text = (self.directory / "arsd.log").read_text(errors="replace").strip()
                raise RuntimeError(f"arsd did not begin: {text.splitlines()[-1:]}")
            time.sleep(0.02)

    def close(self) -> None:
        self._daemon.kill()
        self._daemon.wait()
        self._log.close()

    def _client(self) -> Any:
        """One connection for each thread: a client serves one call at a time."""
        client = getattr(self._local, "client", None)
        if client is None:
            from agent_run_supervisor.arsd.client import ArsdClient

            client = self._local.client = ArsdClient(self._socket)
            client.connect()
        return client

    def start(self, argv: Sequence[str]) -> str:
        request: dict[str, object] = {
            "owner": "bench", "namespace": "bench", "agent_id": "bench", "expected_binding_hash": None,
            "input_refs": [], "requested_model": "bench", "requested_effort": "low", "grant_ref": "bench",
            "grant_hash": _HASH, "grant_role_hash": _HASH, "grant_capabilities": ["read"],
            "mcp_snapshot_hashes": [], "credential_refs": [], "limits": {},
            "evidence_policy_hash": _HASH, "recovery_policy_hash": _HASH,
        }  # fmt: skip
        payload = {
            "request": request,
            "prompt_text": json.dumps(list(argv)),
            "workspace_root": str(self._workspace),
        }
        answer = self._client().submit(request_id=f"bench-{next(self._numbers)}", payload=payload)
        return str(answer["run_id"])

    def wait(self, job: str) -> int:
        while not (result := self._client().run_status(job).get("result")):
            time.sleep(_POLL)
        return int(str(result["final_message"]).removeprefix("exit "))
