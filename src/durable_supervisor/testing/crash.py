"""Crashes on purpose: a host process that is killed at a named point or moment, and parts of a run that are.

Everything is killed with SIGKILL, and only a process that is proven to be the one meant.
"""

from __future__ import annotations

import inspect
import os
import pickle
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from ..model.identity import ProcessIdentity
from ..process.failpoints import VARIABLE as FAILPOINTS
from ..process.identity import Liveness, probe
from ..process.signals import signal_process
from . import child, leftovers
from .reports import VARIABLE as REPORT
from .reports import reported

PATIENCE = 20.0  # seconds
OWN_PREFIX = "host."  # of points in the code of a test or an application
_PAUSE = 0.01
_POINT = re.compile(r"([a-z_.]+)(?:@[1-9][0-9]*)?")
_CALL = re.compile(r'\bfailpoint\(\s*"([a-z_.]+)"\s*\)')


class Host:
    """A process that runs one function of a test.  Made by `CrashInjector`."""

    def __init__(self, process: subprocess.Popen[bytes], folder: Path, at: str | None) -> None:
        self._process = process
        self._folder = folder
        self._at = at

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def reported(self) -> dict[str, Any]:
        """What it handed back with `report`, so far."""
        return reported(self._folder / "report")

    @property
    def killed(self) -> bool:
        """Was it ended by SIGKILL?"""
        return self._process.poll() == -signal.SIGKILL

    @property
    def output(self) -> str:
        """What it printed, stdout and stderr."""
        return (self._folder / "output").read_text(errors="replace")

    def kill(self) -> None:
        """kill -9, and reap.  Idempotent; the test's own child, whose pid cannot have been reused."""
        self._process.kill()
        self._process.wait()

    def wait(self, *, timeout: float = PATIENCE) -> None:
        """Wait for its end: a good one, or the point that it was to die at.  Else AssertionError."""
        try:
            code = self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the host goes on after {timeout} s\n{self.output}") from None
        if self._at is not None and not self.reached:
            raise AssertionError(f"nobody came to {self._at}\n{self.output}")
        if code not in (0, -signal.SIGKILL):
            raise AssertionError(f"the host failed with {code}\n{self.output}")

    def wait_for(self, name: str, *, timeout: float = PATIENCE) -> Any:
        """Wait until it has reported ``name``; its value."""
        deadline = time.monotonic() + timeout
        while (ended := self._process.poll()) is None or name in self.reported:
            if name in self.reported:
                return self.reported[name]
            if time.monotonic() > deadline:
                break
            time.sleep(_PAUSE)
        how = f"in {timeout} s" if ended is None else f"and ended with {ended}"
        raise AssertionError(f"the host did not report {name!r} {how}\n{self.output}")

    @property
    def reached(self) -> bool:
        """Has somebody died at its point: this process, or one that it started?"""
        return (self._folder / "reached").exists()


class CrashInjector:
    """The fixture ``crash_injector``: see ``docs/testing.md``."""

    def __init__(self, state_dir: Path, folder: Path) -> None:
        self._state_dir = state_dir
        self._folder = folder
        self._hosts: list[Host] = []

    def start(
        self,
        function: Callable[..., object],
        *arguments: object,
        at: str | None = None,
        env: Mapping[str, str] | None = None,
    ) -> Host:
        """Run ``function(*arguments)``, sync or async, in a new process, which goes on beside the test.

        The function is one of a module, since the process imports it anew; arguments are
        pickled.  ``at``: the failpoint where whoever comes there first dies (``"worker.released"``; at its
        third pass with ``"…@3"``); names with ``host.`` are the test's own.  ``env``: further variables.
        """
        if at is not None:
            _check_point(at)
        folder = self._folder / f"host-{len(self._hosts) + 1}"
        folder.mkdir(mode=0o700, parents=True)
        (folder / "call").write_bytes(_pickled(function, arguments))
        environment = {**os.environ, **(env or {}), REPORT: str(folder / "report")}
        if at is not None:
            name, _, count = at.partition("@")
            environment[FAILPOINTS] = f"{name}=kill@{count or 1}>{folder / 'reached'}"
        with open(folder / "output", "wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-P", str(child.__file__), str(folder / "call")],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=environment,
            )
        self._hosts.append(Host(process, folder, at))
        return self._hosts[-1]

    def run(
        self,
        function: Callable[..., object],
        *arguments: object,
        at: str | None = None,
        after: float | None = None,
        env: Mapping[str, str] | None = None,
        timeout: float = PATIENCE,
    ) -> Host:
        """As `start`, to its end: its own, at the failpoint ``at``, or ``after`` so many seconds.

        AssertionError where it fails, takes longer than ``timeout``, or nobody comes to ``at``.
        """
        host = self.start(function, *arguments, at=at, env=env)
        if after is not None:
            time.sleep(after)
            host.kill()
        host.wait(timeout=timeout)
        return host

    def kill_worker(self, run_id: str) -> int:
        """kill -9 the worker of a run, whose program then goes on unattended; its pid, once it is gone."""
        return _killed(f"worker of {run_id}", self._identity(run_id, "worker"))

    def kill_program(self, run_id: str) -> int:
        """kill -9 the leader of a run's program; its pid, once it is gone."""
        return _killed(f"program of {run_id}", self._identity(run_id, "program"))

    def kill_supervisor(self) -> int:
        """kill -9 the process that owns the directory; its pid, once it is gone.

        AssertionError where nobody owns it, or this very process does.
        """
        owner = leftovers.owner(self._state_dir)
        if owner is None:
            raise AssertionError("no supervisor owns the state directory")
        if owner.pid == os.getpid():
            raise AssertionError("this very process owns the state directory: run the host in start()")
        return _killed("supervisor", owner)

    def close(self) -> None:
        """End every host that is left."""
        for host in self._hosts:
            host.kill()

    def _identity(self, run_id: str, who: str) -> ProcessIdentity:
        """Of the run's newest attempt, as soon as it is logged."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            tries = [one for one in leftovers.attempts(self._state_dir) if one.run_id == run_id]
            found: ProcessIdentity | None = getattr(tries[-1], who) if tries else None
            if found is not None:
                return found
            time.sleep(_PAUSE)
        raise AssertionError(f"no {who} of run {run_id!r} is in its log")


def _killed(what: str, identity: ProcessIdentity) -> int:
    if not signal_process(identity, signal.SIGKILL):
        raise AssertionError(f"the {what}, process {identity.pid}, is gone already")
    deadline = time.monotonic() + PATIENCE
    while probe(identity) is Liveness.ALIVE:
        if time.monotonic() > deadline:
            raise AssertionError(f"the {what}, process {identity.pid}, does not die")
        time.sleep(_PAUSE)
    return identity.pid


def _pickled(function: Callable[..., object], arguments: tuple[object, ...]) -> bytes:
    """For `child`: first where the function is, then its arguments, which may be of its module."""
    name = getattr(function, "__qualname__", "<>")
    if "<" in name:
        raise ValueError("a host is a function of a module: its process cannot see a local one or a lambda")
    source = os.path.abspath(inspect.getfile(function))
    return pickle.dumps((sys.path, function.__module__, source, name)) + pickle.dumps(arguments)


def _check_point(at: str) -> None:
    match = _POINT.fullmatch(at)
    known = points()
    if match is None or not (match[1].startswith(OWN_PREFIX) or match[1] in known or not known):
        raise ValueError(f"{at!r} is no failpoint: host.<yours>, or one of {', '.join(sorted(known))}")


@cache
def points() -> frozenset[str]:
    """Every failpoint of the product, as its source has them; none where that is not at hand."""
    files = _modules(resources.files("durable_supervisor"))
    return frozenset(name for file in files for name in _CALL.findall(file.read_text(encoding="utf-8")))


def _modules(folder: Traversable) -> Iterator[Traversable]:
    for one in folder.iterdir():
        if one.is_dir():
            yield from _modules(one)
        elif one.name.endswith(".py"):
            yield one
