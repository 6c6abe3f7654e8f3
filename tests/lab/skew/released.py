"""Older code of the product, out of its history, and state directories as that code leaves them.

``python -m tests.lab.skew.released COMMIT NAME`` writes such a directory to tests/fixtures/directories; an
existing one is never written anew.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import pytest

from durable_supervisor import Command, Limits, Supervisor
from tests.crash.harness import ROOT

FIXTURES = ROOT / "tests" / "fixtures" / "directories"
# The last commit before the journal's next schema.
SCHEMAS = {"schema-1": "c3b10ae", "schema-2": "0888e01~1", "schema-3": "789ca2d"}
REQUESTS: dict[str, dict[str, Any]] = {
    "over": {"argv": ["sh", "-c", "echo out; echo err >&2; exit 5"]},
    "loud": {"argv": ["sh", "-c", "head -c 300000 /dev/zero | tr '\\0' x; exit 5"]},
    "secret": {"argv": ["sh", "-c", "echo $API_TOKEN; exit 5"], "env": {"API_TOKEN": "not-to-be-kept"}},
    "missing": {"argv": ["/nonexistent/program"]},
    "lost": {"argv": ["sh", "-c", "exec sleep 600"]},
}
LIMITS = Limits(grace=1.0, max_stdout_bytes=100_000)


def code_of(commit: str, folder: Path) -> Path:
    """The source tree of a commit; a skip where the history is not at hand."""
    git = ["git", "-C", str(ROOT), "archive", commit, "src", "migrations"]
    done = subprocess.run(git, capture_output=True, check=False)
    if done.returncode:
        pytest.skip(f"the history of the product is not at hand: {done.stderr.decode().strip()}")
    folder.mkdir(exist_ok=True)
    unpack(done.stdout, folder)
    return folder / "src"


def unpack(archive: bytes, folder: Path) -> None:
    """A tar with its modes: what Python's own way of it does with them depends on its version."""
    command = ["tar", "-x", "-p", "--no-same-owner", "-C", str(folder)]
    subprocess.run(command, input=archive, check=True)


async def leave(state_dir: Path) -> None:
    """A life with every kind of end, by whatever version is on the path; the process is killed in it."""
    async with Supervisor.open(state_dir) as sup:
        for name, words in REQUESTS.items():
            command = Command(cwd="/", **words)
            run = await sup.start(command, request_id=name, limits=LIMITS, labels={"kept": name})
            if name not in ("missing", "lost"):
                await sup.wait(run.id, timeout=30)
        await sup.reconcile()
        lost = await sup.inspect(run.id)
        for one in (lost.worker, lost.program):
            os.kill(int(str(dict(one or {})["pid"])), 9)  # our own children's, a moment old
        os.kill(os.getpid(), 9)


def make(commit: str, name: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        source = code_of(commit, Path(folder))
        state = Path(folder) / "state"
        env = {**os.environ, "PYTHONPATH": f"{source}:{ROOT}"}
        command = [sys.executable, str(Path(__file__)), "leave", str(state)]
        subprocess.run(command, env=env, cwd=folder, check=False)
        ignored = shutil.ignore_patterns("*.sock", "supervisor.*", "journal.db-shm")
        shutil.copytree(state, Path(folder) / name, ignore=ignored)
        FIXTURES.mkdir(parents=True, exist_ok=True)
        with tarfile.open(FIXTURES / f"{name}.tar.xz", "x:xz") as archive:
            archive.add(Path(folder) / name, name)


if __name__ == "__main__":
    if sys.argv[1] == "leave":
        asyncio.run(leave(Path(sys.argv[2])))
    else:
        make(*sys.argv[1:3])
