"""A worker's side of the gate, in a process of its own.

Its script finds ``make(*argv, env=…, cwd=…, …)``, which answers the paused program; ``ended(pid)``, its
status as of `subprocess`; and ``failed(*argv, …)``, step and error of what could not be started, or that
status.  What it prints is what the test gets.
"""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import durable_supervisor

WAYS = ("clone", "fork")
_SOURCE = Path(durable_supervisor.__file__).parents[1]
_PRELUDE = """
import ctypes, errno, fcntl, json, os, resource, signal, struct, sys, time
sys.path.insert(0, sys.argv[1])
from durable_supervisor.process import gate
from durable_supervisor.process.gate import fork_paused
from durable_supervisor.process.paused import clone
from durable_supervisor.process.program import Program, StartFailure, Stdio
from durable_supervisor.process.signals import STRAY_SIGNALS

way, arguments = sys.argv[2], sys.argv[3:]
stdio = Stdio(0, 1, 2)
if way == "fork":
    gate._cloner = "by the test's own choice"
if way in ("clone", "fork"):
    assert isinstance(gate.cloner(), str) == (way == "fork")

def make(*argv, env={}, cwd="/", umask=0o077, stdio=stdio):
    return fork_paused(Program(argv[0], list(argv), cwd, env, umask), stdio)

def ended(pid):
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

def failed(*argv, **options):
    paused = None
    try:
        paused = make(*argv, **options)
        paused.release()
    except StartFailure as failure:
        try:
            assert paused is None or os.waitpid(paused.pid, 0) is None
        except ChildProcessError:
            pass  # it was waited for already
        return [failure.step, errno.errorcode[failure.code]]
    return ended(paused.pid)
"""


def command(script: str, way: str, *arguments: object) -> list[str]:
    code = _PRELUDE + textwrap.dedent(script)
    return [sys.executable, "-I", "-S", "-c", code, str(_SOURCE), way, *map(str, arguments)]


def worker(script: str, way: str, *arguments: object, **options: Any) -> str:
    """What it has printed, as of its end."""
    options = {"stdin": subprocess.DEVNULL, "timeout": 30} | options
    done = subprocess.run(
        command(script, way, *arguments), capture_output=True, text=True, check=False, **options
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
