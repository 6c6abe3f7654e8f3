"""The command on a pseudo-terminal."""

from __future__ import annotations

import signal
from pathlib import Path

import pexpect

from tests.cli.helpers import COMMAND, environment
from tests.stuck import look_at
from tests.support import PATIENCE


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
            timeout=PATIENCE,
            dimensions=(40, 120),
            preexec_fn=heed_signals,
        )
        self._started.append(child)
        return child

    def close(self) -> None:
        for child in self._started:
            if child.isalive():
                print(look_at(child.pid))  # for a test that has failed: what it was at
            child.close(force=True)


def heed_signals() -> None:
    """As below a shell in the foreground: one puts it off in what it starts in the background."""
    for signo in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM):
        signal.signal(signo, signal.SIG_DFL)


def finish(child: pexpect.spawn[str]) -> tuple[str, int | None]:
    """Everything still to come, and the exit code."""
    child.expect(pexpect.EOF)
    text = child.before
    child.close()
    return text or "", child.exitstatus
