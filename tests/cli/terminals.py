"""The command on a pseudo-terminal."""

from __future__ import annotations

from pathlib import Path

import pexpect

from tests.cli.helpers import COMMAND, environment


class Terminal:
    """Starts the command on a pseudo-terminal and ends it afterwards."""

    def __init__(self, state_dir: Path) -> None:
        self._state_dir = state_dir
        self._started: list[pexpect.spawn[str]] = []

    def __call__(self, *words: str, **env: str) -> pexpect.spawn[str]:
        child: pexpect.spawn[str] = pexpect.spawn(
            COMMAND[0],
            [*COMMAND[1:], *words],
            env=environment(self._state_dir, **env),
            encoding="utf-8",
            timeout=30,
            dimensions=(40, 120),
        )
        self._started.append(child)
        return child

    def close(self) -> None:
        for child in self._started:
            child.close(force=True)


def finish(child: pexpect.spawn[str]) -> tuple[str, int | None]:
    """Everything still to come, and the exit code."""
    child.expect(pexpect.EOF)
    text = child.before
    child.close()
    return text or "", child.exitstatus
