"""asyncio subprocess with its output into a file: the undurable lower bound in Python."""

from __future__ import annotations

import asyncio
import itertools
import platform
from asyncio.subprocess import PIPE, Process
from collections.abc import Sequence

from .harness import AsyncPeer


class Peer(AsyncPeer):
    NOTE = "all lost with the process; output is read from a pipe and written to a file"
    _numbers = itertools.count()

    def version(self) -> str:
        return platform.python_version()

    async def astart(self, argv: Sequence[str]) -> Process:
        return await asyncio.create_subprocess_exec(*argv, stdout=PIPE)

    async def await_exit(self, job: Process) -> int:
        assert job.stdout is not None
        with open(self.directory / f"out-{next(self._numbers)}", "wb") as file:  # noqa: ASYNC230  a page cache write
            while data := await job.stdout.read(256 * 1024):
                file.write(data)
        return await job.wait()
