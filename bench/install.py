"""What the benchmark needs beside the product: Python peers in a private environment, tools from Debian."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from .child import REPOSITORY

Say = Callable[[str], None]

VENV = REPOSITORY / "bench" / ".venv"
# By peer.  Pinned, so that two sittings compare; one that cannot be had leaves out only its peer.
PACKAGES = {
    "agent-run-supervisor": "agent-run-supervisor[native]==0.7.9",
    "agent-runtime-py": "agent-runtime-py==0.1.1",
    "running-process": "running-process==4.10.17",
    "huey": "huey==3.5.4",
    "supervisord": "supervisor==4.3.0",
}
# By peer ("" is for the figures): (command, Debian package).
COMMANDS = {
    "": (("strace", "strace"), ("gcc", "gcc")),
    "conmon": (("conmon", "conmon"),),
    "task-spooler": (("tsp", "task-spooler"),),
    "nq": (("nq", "nq"),),
    "pueue": (("pueue", "pueue"),),
}
_SECONDS = 300


def environment(say: Say, peers: Iterable[str]) -> Path | None:
    """The bench's own environment with the chosen Python peers; None where none is wanted or it fails."""
    wanted = {name: PACKAGES[name] for name in peers if name in PACKAGES}
    if not wanted:
        return None
    python = VENV / "bin" / "python"
    if not _run([str(python), "-m", "pip", "--version"]):
        say("making bench/.venv")
        if not _run([sys.executable, "-m", "venv", "--clear", str(VENV)]):
            say("no environment for Python peers: python -m venv failed")
            return None
    for name, requirement in wanted.items():
        mark = VENV / f".installed-{name}"
        if mark.exists() and mark.read_text() == requirement:
            continue
        say(f"installing {requirement}")
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", requirement]
        if _run(pip):
            mark.write_text(requirement)
    return VENV


def system(say: Say, peers: Iterable[str]) -> None:
    """Debian's tools for the figures and the chosen peers, where this is root and apt is there."""
    needed = [pair for name in ("", *peers) for pair in COMMANDS.get(name, ())]
    missing = [package for command, package in needed if shutil.which(command) is None]
    if not missing or os.geteuid() != 0 or shutil.which("apt-get") is None:
        return
    fresh = _apt("update")
    for package in missing:
        say(f"installing {package} (Debian)")
        if not fresh or not _apt("install", "-y", "--no-install-recommends", package):
            say(f"{package} is not to be had")


def _apt(*arguments: str) -> bool:
    return _run(["apt-get", "-qq", *arguments], DEBIAN_FRONTEND="noninteractive")


def _run(argv: list[str], **extra: str) -> bool:
    try:
        done = subprocess.run(
            argv, env={**os.environ, **extra}, stdin=subprocess.DEVNULL, capture_output=True, timeout=_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0
