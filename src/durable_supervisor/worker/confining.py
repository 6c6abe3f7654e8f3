"""A run with a plan: fork its program confined, and say what came of it.

Imported only for such a run.
"""

from __future__ import annotations

import json

from ..process.gate import PausedProgram, Program, Stdio, fork_paused
from ..process.program import ConfinementRefused
from ..sandbox import child
from ..sandbox.plan import BUBBLEWRAP, Plan

Report = dict[str, dict[str, object]]


def fork_confined(message: dict[str, object], program: Program, stdio: Stdio) -> tuple[PausedProgram, Report]:
    """The paused program, confined as ``message`` (`sandbox.plan.Plan`) says, and what was enforced.

    Raises StartFailure; ConfinementRefused where a required axis could not be had.
    """
    plan = Plan.from_message(message)
    executable = program.path
    if plan.files is not None and plan.files.backend == BUBBLEWRAP:
        from ..sandbox import bubblewrap

        path, argv = bubblewrap.wrap(program.path, program.argv, plan, program.cwd)
        program = Program(path, argv, program.cwd, program.env, program.umask)
    paused = fork_paused(program, stdio, lambda: _confine(plan, executable, terminal=stdio.terminal))
    answer = json.loads(paused.report)
    if "refused" in answer:
        paused.discard()
        raise ConfinementRefused(*answer["refused"], executable)
    return paused, plan.report(answer["changes"])


def _confine(plan: Plan, executable: str, *, terminal: bool) -> bytes:
    """In the paused child.  What it answers is read by `fork_confined`."""
    try:
        answer: dict[str, object] = {"changes": child.confine(plan, executable, terminal=terminal)}
    except child.Refused as refusal:
        answer = {"refused": [refusal.axis, refusal.reason]}
    return json.dumps(answer).encode()
