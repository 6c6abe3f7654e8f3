"""Processes whose calls to the disk can fail, be cut short or be their last, and are written down.

The shim stands between a process and its C library; real files lie below it.  It never reaches a program:
the product gives those an environment of their own.
"""

from __future__ import annotations

import functools
import mmap
import os
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from enum import IntEnum
from pathlib import Path

import pytest

SOURCE = Path(__file__).with_name("shim.c")
ROOT = Path(__file__).resolve().parents[3]
_RULE = struct.Struct("@8i256s")


class Call(IntEnum):
    """What can be struck.  As in shim.c."""

    WRITE = 0
    SYNC = 1
    SYNC_DIR = 2
    ALLOCATE = 3
    TRUNCATE = 4
    CREATE = 5
    MKDIR = 6
    UNLINK = 7
    RENAME = 8
    LINK = 9  # a file without a name gets one
    SYNC_BEGAN = 10  # only ever written down


ALL = tuple(call for call in Call if call is not Call.SYNC_BEGAN)


class Action(IntEnum):
    """What becomes of the call.  As in shim.c."""

    OFF = 0
    FAIL = 1
    SHORT = 2  # a write that writes half
    DIE = 3  # kill -9, before it
    DIE_TORN = 4  # kill -9, after half of a write


class Role(IntEnum):
    OWNER = 1
    WORKER = 2  # and its zygote


@functools.cache
def shim() -> Path:
    """Compiled once for each process; who has it under it already, knows it.  A skip without compiler."""
    if "LAB_FAULTS" in os.environ:
        return Path(os.environ["LD_PRELOAD"])
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None or sys.platform != "linux":
        pytest.skip("the fault shim needs Linux and a C compiler")
    made = Path(tempfile.gettempdir()) / f"durable-supervisor-lab-{os.getuid()}-{os.getpid()}"
    made.mkdir(mode=0o700, exist_ok=True)
    library = made / "shim.so"
    options = ["-O1", "-Wall", "-Wextra", "-Wno-unused-parameter", "-shared", "-fPIC"]
    subprocess.run([compiler, *options, "-o", library, SOURCE, "-ldl"], check=True)
    return library


class Faults:
    """The rule of one experiment, and the environment of who is subject to it.

    ``root``: only what lies below counts, for the rule and for the trace.
    """

    def __init__(self, folder: Path, root: Path, *, traced: bool = False) -> None:
        self.root = root
        self.library = shim()
        self._file = folder / "faults"
        if not self._file.exists():  # else it is mapped already
            self._file.write_bytes(bytes(_RULE.size))
        self.trace = folder / "trace" if traced else None
        if self.trace is not None:
            self.trace.touch()
        with open(self._file, "r+b") as file:
            self._map = mmap.mmap(file.fileno(), _RULE.size)

    def environment(self, role: Role) -> dict[str, str]:
        found = {
            "LD_PRELOAD": str(self.library),
            "LAB_FAULTS": str(self._file),
            "LAB_ROOT": str(self.root),
            "LAB_ROLE": str(int(role)),
        }
        return found | ({"LAB_TRACE": str(self.trace)} if self.trace else {})

    def interpreter(self, folder: Path, role: Role) -> Path:
        """An executable that is this Python, with the shim under it."""
        path = folder / f"python-{role.name.lower()}"
        words = " ".join(f"{name}='{value}'" for name, value in self.environment(role).items())
        path.write_text(f"#!/bin/sh\nexec env {words} '{sys.executable}' \"$@\"\n")
        path.chmod(0o755)
        return path

    def arm(
        self,
        action: Action,
        role: Role,
        *,
        calls: Iterable[Call] = ALL,
        path: str = "",
        error: int = 0,
        skip: int = 0,
        times: int = 1,
    ) -> None:
        """Strike calls of ``role`` whose path has ``path`` in it: after ``skip``, ``times`` (-1: every)."""
        self.disarm()
        mask = sum(1 << call for call in calls)
        fields = (role, mask, error, skip, times, 0, -1, os.fsencode(path))
        self._map[: _RULE.size] = _RULE.pack(Action.OFF, *fields)
        self._map[:4] = struct.pack("@i", action)

    def disarm(self) -> None:
        self._map[:4] = struct.pack("@i", Action.OFF)

    @property
    def hits(self) -> int:
        """How many calls were struck."""
        return int(_RULE.unpack(self._map[: _RULE.size])[6])

    @property
    def last(self) -> str:
        """Which kind of call was struck last."""
        number = int(_RULE.unpack(self._map[: _RULE.size])[7])
        return Call(number).name.lower() if number >= 0 else ""

    @property
    def at(self) -> int:
        """How many calls the rule has looked at since it was armed with ``skip``; negative once it struck."""
        return int(_RULE.unpack(self._map[: _RULE.size])[4])

    def close(self) -> None:
        self._map.close()
