"""A run with a plan: fork its program confined, and say what came of it.

Imported only for such a run.
"""

from __future__ import annotations

import json

from ..model.enforcement import SUBREAPER
from ..process.gate import PausedProgram, fork_paused
from ..process.program import ConfinementRefused, Program, StartFailure, Stdio
from ..sandbox import child
from ..sandbox.plan import Plan, Refused
from ..sandbox.report import BUBBLEWRAP, by, failed
from .resources import Resources

Report = dict[str, dict[str, object]]


def fork_confined(
    message: dict[str, object], program: Program, stdio: Stdio, group: str
) -> tuple[PausedProgram, Report, Resources | None]:
    """The paused program, confined as ``message`` (`sandbox.plan.Plan`) says, and what was enforced.

    ``group``: whose groups they are, by name; what holds and watches them comes third.
    Raises StartFailure; ConfinementRefused where a required axis could not be had.
    """
    plan = Plan.from_message(message)
    asked = program
    if plan.files is not None and plan.files.backend == BUBBLEWRAP:
        from ..sandbox.files import bubblewrap

        path, argv = bubblewrap.wrap(program.path, program.argv, plan, program.cwd)
        program = Program(path, argv, program.cwd, {}, program.umask)
    resources = None if plan.cgroups is None else Resources(plan, group)
    try:
        lost = {} if resources is None else _changes(plan, resources.make(), asked.path)
        paused = fork_paused(program, stdio, lambda: _confine(plan, asked, terminal=stdio.terminal))
        try:
            answer = json.loads(paused.report)
            if "refused" in answer:
                axis, reason = answer["refused"]
                raise ConfinementRefused(axis, reason, asked.path)
            if resources is not None:
                lost |= _changes(plan, resources.admit(paused.pid), asked.path)
        except StartFailure:
            paused.discard()
            raise
    except StartFailure:
        if resources is not None:
            resources.remove()
        raise
    return paused, plan.report(answer["changes"] | lost), resources


def _changes(plan: Plan, lost: dict[str, str], executable: str) -> Report:
    """What is reported of axes whose group failed: why, by axis.  Raises ConfinementRefused."""
    changes: Report = {}
    for axis, reason in lost.items():
        if axis == "tree":
            changes[axis] = by(SUBREAPER)  # the walk over the tree holds it as well
        elif plan.required(axis):
            raise ConfinementRefused(axis, reason, executable)
        else:
            changes[axis] = failed(reason)
    return changes


def _confine(plan: Plan, program: Program, *, terminal: bool) -> bytes:
    """In the paused child.  What it answers is read by `fork_confined`."""
    try:
        changes = child.confine(plan, program.path, program.env, terminal=terminal)
        answer: dict[str, object] = {"changes": changes}
    except Refused as refusal:
        answer = {"refused": [refusal.axis, refusal.reason]}
    return json.dumps(answer).encode()
