"""This product on the peers' work, measured as they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from durable_supervisor import Command, Limits, Supervisor, __version__

from .harness import AsyncPeer


class Peer(AsyncPeer):
    DURABLE = "intent, output (1 MiB or 1 s), exit"
    NOTE = "embedded; acked means durable and released"

    def version(self) -> str:
        return __version__

    def open(self, commands: Mapping[tuple[str, ...], int]) -> None:
        self.sup: Supervisor = self.run(self._open())

    async def _open(self) -> Supervisor:
        return await Supervisor.open(self.directory / "state", zygote=True)

    def close(self) -> None:
        self.run(self.sup.close())

    async def astart(self, argv: Sequence[str]) -> str:
        run = await self.sup.start(Command(argv=list(argv)), limits=Limits(max_stdout_bytes=1 << 40))
        return run.id

    async def await_exit(self, job: str) -> int:
        outcome = (await self.sup.wait(job)).outcome
        return -1 if outcome is None or outcome.code is None else outcome.code
