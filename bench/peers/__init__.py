"""Other ways to run programs, on the same work: run ``true`` and know each exit code, stream, idle jobs.

Each module has a class ``Peer`` (see `harness`) and is driven in a process of its own,
by the bench's environment where the peer is a Python package.
"""

from __future__ import annotations

import json
import os
import shutil
import sys

from ..child import ChildFailed, answer
from ..install import COMMANDS, PACKAGES
from ..model import Context, NotMeasured, PeerResult

MODULES = {
    "durable-supervisor": "product",
    "asyncio": "plain_asyncio",
    "running-process": "running_process_",
    "task-spooler": "task_spooler",
    "nq": "nq",
    "huey": "huey_sqlite",
    "supervisord": "supervisord",
    "conmon": "conmon",
    "pueue": "pueue",
    "agent-run-supervisor": "agent_run_supervisor_",
    "agent-runtime-py": "agent_runtime_monitors",
}
NAMES = tuple(MODULES)
NOT_AS_ROOT = ("agent-run-supervisor",)
_NOBODY = 65534
_SECONDS = 150


def measure(ctx: Context, name: str) -> PeerResult:
    """Raises `NotMeasured` with the reason where the peer is not there or does not work."""
    python = _python(ctx, name)
    with ctx.directory(f"peer-{name}") as directory:
        tools = {tool: str(path) for tool, path in ctx.tools.items()}
        argv = [python, "-m", "bench.peers.harness", MODULES[name], str(directory), json.dumps(tools)]
        if ctx.quick:
            argv.append("--quick")
        if name in NOT_AS_ROOT and os.geteuid() == 0:
            argv = [*_as_nobody(), *argv]
            ctx.work.chmod(0o711)  # to be passed through; what is in it stays private
            os.chown(directory, _NOBODY, _NOBODY)
        try:
            found = answer(argv, {"HOME": str(directory)}, timeout=_SECONDS)
        except ChildFailed as failure:
            raise NotMeasured(str(failure)) from None
    return PeerResult(name=name, **found)


def _python(ctx: Context, name: str) -> str:
    for command, package in COMMANDS.get(name, ()):
        if shutil.which(command) is None:
            raise NotMeasured(
                f"{command} is not installed (Debian package {package}: not to be had, or not root)"
            )
    if name not in PACKAGES:
        return sys.executable
    if ctx.venv is None or not (ctx.venv / f".installed-{name}").exists():
        raise NotMeasured(f"{PACKAGES[name]} could not be installed from PyPI")
    return str(ctx.venv / "bin" / "python")


def _as_nobody() -> list[str]:
    setpriv = shutil.which("setpriv")
    if setpriv is None:
        raise NotMeasured("it refuses to run as root, and setpriv is not there")
    # This Python may lie in root's home: to be read there is all that is kept of root.
    kept = [f"--{kind}-caps=-all,+dac_read_search" for kind in ("inh", "ambient")]
    return [setpriv, f"--reuid={_NOBODY}", f"--regid={_NOBODY}", "--clear-groups", *kept]
