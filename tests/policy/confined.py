"""Runs under a policy: how they ended, what they said, and what was enforced."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from durable_supervisor import Command, Limits, Policy
from durable_supervisor.model.run import Run
from durable_supervisor.model.view import RunView
from tests.contract.runs import Runs
from tests.support import PATIENCE


@dataclass(frozen=True, slots=True)
class Ended:
    """A run that is over.  ``enforcement`` is its receipt's; ``view.reason`` says why one never started."""

    view: RunView
    stdout: bytes
    stderr: bytes
    enforcement: dict[str, dict[str, Any]]

    @property
    def outcome(self) -> str | None:
        """``exited``, ``signaled``, ``out_of_memory`` …; None for a run that never started."""
        return None if self.view.outcome is None else self.view.outcome.kind.value

    @property
    def exit_code(self) -> int | None:
        return None if self.view.outcome is None else self.view.outcome.code

    @property
    def receipt(self) -> dict[str, Any]:
        assert self.view.receipt is not None
        return dict(self.view.receipt)

    @property
    def lines(self) -> list[str]:
        return self.stdout.decode(errors="replace").splitlines()


class Confined:
    """Starts runs.  ``options`` are fields of `Command` and of `Limits`, by their own names."""

    def __init__(self, runs: Runs) -> None:
        self.runs = runs

    async def start(self, argv: list[str], policy: Policy | None = None, **options: Any) -> Run:
        bounds = {name: options.pop(name) for name in list(options) if name in Limits.FIELDS}
        limits = Limits(**{"grace": 3, **bounds})
        return await self.runs.sup.start(Command(argv=argv, **options), policy=policy, limits=limits)

    async def ended(self, run: Run) -> Ended:
        view = await self.runs.wait(run, timeout=PATIENCE)
        report: Any = (view.receipt or {}).get("enforcement", {})
        return Ended(view, await self.runs.output(run), await self.runs.output(run, "stderr"), report)

    async def __call__(self, argv: list[str], policy: Policy | None = None, **options: Any) -> Ended:
        """One run, to its end."""
        return await self.ended(await self.start(argv, policy, **options))


def attempts(lines: list[str]) -> dict[str, str]:
    """What became of each attempt of a hostile program: the name of an error, or ``done``."""
    return {name: result for name, _, result in (line.partition(" ") for line in lines)}


def done(lines: list[str]) -> set[str]:
    """The attempts that succeeded."""
    return {name for name, result in attempts(lines).items() if result == "done"}
