"""Every face under one set of words."""

from __future__ import annotations

import itertools
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import durable_supervisor
from durable_supervisor import AsyncClient, ErrorCode, Phase, Supervisor
from durable_supervisor.model.run import Run
from tests.client.faces import SyncFace
from tests.contract.hosts import refused
from tests.contract.runs import Runs

EMBEDDING = ("embedded", "session")
KINDS = (*EMBEDDING, "guest", "async", "sync")
_STREAMS = ("follow", "follow_feed")
_numbers = itertools.count(1)


class Blocking:
    """`Client` with the verbs of the others: each call in a thread of its own."""

    def __init__(self, face: SyncFace) -> None:
        self._face = face

    def __getattr__(self, verb: str) -> Callable[..., Any]:
        if verb in _STREAMS:
            return lambda *args, **options: self._face.stream(verb, *args, **options)
        return lambda *args, **options: self._face.call(verb, *args, **options)


class Face(Runs):
    """Whoever answers (``sup``), and the words of the contract's tests for what is done over and over."""

    def __init__(self, kind: str, sup: Any, state_dir: Path) -> None:
        super().__init__(cast(Supervisor, sup), state_dir)
        self.kind = kind
        self.tag = f"{os.getpid()}-{next(_numbers)}"  # of this test, among all that share a directory

    def id(self, name: str) -> str:
        """A request id that only this test uses."""
        return f"{name}-{self.tag}"

    async def ask(self, name: str, argv: list[str], **options: Any) -> Run:
        """Start ``argv`` under the test's request id ``name``."""
        command = durable_supervisor.Command(argv=argv)
        return await self.sup.start(command, request_id=self.id(name), **options)


@asynccontextmanager
async def opened(kind: str, state_dir: Path, **limits: Any) -> AsyncIterator[Face]:
    """The face of this kind.  ``limits`` are its own where it owns the directory, and the service's else."""
    if kind == "embedded":
        async with Supervisor.open(state_dir, **limits) as sup:
            yield Face(kind, sup, state_dir)
    elif kind in ("session", "guest"):
        async with durable_supervisor.open(state_dir, **limits) as session:
            assert session.role == ("owner" if kind == "session" else "client")
            yield Face(kind, session, state_dir)
    elif kind == "async":
        async with AsyncClient.connect(state_dir) as client:
            yield Face(kind, client, state_dir)
    else:
        blocking = await SyncFace.connect(state_dir)
        try:
            yield Face(kind, Blocking(blocking), state_dir)
        finally:
            await blocking.close()


@asynccontextmanager
async def refusing(
    code: ErrorCode, phase: Phase, details: dict[str, Any], *, retryable: bool = False
) -> AsyncIterator[None]:
    """The body must raise exactly this, whoever answers."""
    async with refused(code) as caught:
        yield
    error = caught()
    assert (error.phase, error.retryable) == (phase, retryable), error.to_dict()
    assert error.details == details
