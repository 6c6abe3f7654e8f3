"""Measured processes: run one to its end, or keep one for a while, and never leave one behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent
_PATHS = os.pathsep.join([str(REPOSITORY), str(REPOSITORY / "src")])


class ChildFailed(Exception):
    """A measured process left with an error; the text is the end of its stderr."""


def host(name: str, *arguments: object) -> list[str]:
    """The command line of a module of `bench.hosts`."""
    return [sys.executable, "-m", f"bench.hosts.{name}", *map(str, arguments)]


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": _PATHS, **(extra or {})}


def answer(argv: Sequence[str], extra: Mapping[str, str] | None = None, timeout: float = 180) -> Any:
    """The JSON that a process prints as its last line.  Raises `ChildFailed`."""
    # A session of its own, so that after a time-out all of it can be ended by its group.
    with subprocess.Popen(
        argv, env=environment(extra), stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    ) as child:
        try:
            out, err = child.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            raise ChildFailed(f"no answer within {timeout:g} s") from None
        finally:
            _end_group(child)
    lines = out.decode(errors="replace").splitlines()
    if child.returncode or not lines:
        sys.stderr.write(err.decode(errors="replace"))
        raise ChildFailed(f"exit {child.returncode}: {_last(err)}")
    return json.loads(lines[-1])


@contextmanager
def kept(argv: Sequence[str], extra: Mapping[str, str] | None = None) -> Iterator[Any]:
    """A process that prints a line of JSON, goes on, and ends when a line is sent to it."""
    with subprocess.Popen(
        argv,
        env=environment(extra),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stderr is not None
        try:
            line = child.stdout.readline()
            if not line:
                raise ChildFailed(_last(child.stderr.read()))
            yield json.loads(line)
            child.stdin.write(b"\n")
            child.stdin.close()
            child.wait(timeout=60)
        finally:
            _end_group(child)


def _end_group(child: subprocess.Popen[bytes]) -> None:
    if child.poll() is None:
        os.killpg(child.pid, signal.SIGKILL)  # it leads its own session, so the group is ours
        child.wait()


def _last(text: bytes) -> str:
    lines = text.decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else "no message"
