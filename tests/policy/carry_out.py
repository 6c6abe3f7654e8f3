"""Carry out a plan without a supervisor: ``carried_out(plan, argv, cwd)``, in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from durable_supervisor.process.program import ConfinementRefused, Program, Stdio
from durable_supervisor.sandbox import privileges
from durable_supervisor.sandbox.calls import seccomp
from durable_supervisor.sandbox.plan import Plan
from durable_supervisor.worker.confining import fork_confined

_ROOT = Path(__file__).parents[2]


class CarriedOut:
    """``report``: what was enforced, axis by axis; ``exit_code``: negative for a signal."""

    def __init__(self, answer: dict[str, Any]) -> None:
        self.report: dict[str, dict[str, Any]] = answer["report"]
        self.exit_code: int = answer["exit_code"]
        self.lines: list[str] = answer["output"].splitlines()


class NotExecuted(Exception):
    """With what it was refused for."""


def carried_out(plan: Plan, argv: list[str], cwd: str, *, without: tuple[str, ...] = ()) -> CarriedOut:
    """The program under this plan, to its end.  Raises NotExecuted.

    ``without``: what the kernel refuses this time, though the plan counts on it (`seccomp.rules`).
    """
    asked = {"plan": plan.to_message(), "argv": argv, "cwd": cwd, "without": without}
    path = os.pathsep.join([str(_ROOT / "src"), str(_ROOT), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-m", "tests.policy.carry_out"],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
        cwd=_ROOT,
        env={**os.environ, "PYTHONPATH": path},
    )
    answer = json.loads(done.stdout)
    if "refused" in answer:
        raise NotExecuted(*answer["refused"])
    return CarriedOut(answer)


def _main() -> None:
    asked = json.load(sys.stdin)
    read, write = os.pipe()
    nothing = os.open(os.devnull, os.O_RDONLY)
    argv, env = asked["argv"], {"PATH": os.defpath}
    program = Program(argv[0], argv, asked["cwd"], env, 0o077)
    if asked["without"]:
        privileges.gain_none()
        seccomp.install(dict.fromkeys(asked["without"], True))
    try:
        stdio, group = Stdio(nothing, write, write), f"carried-out.{os.getpid()}"
        paused, report, resources = fork_confined(asked["plan"], program, stdio, group)
    except ConfinementRefused as refusal:
        json.dump({"refused": [refusal.axis, refusal.reason]}, sys.stdout)
        return
    os.close(write)
    paused.release()
    with open(read, encoding="utf-8", errors="replace") as output:
        text = output.read()
    code = os.waitstatus_to_exitcode(os.waitpid(paused.pid, 0)[1])
    if resources is not None:
        resources.remove()
    json.dump({"report": report, "exit_code": code, "output": text}, sys.stdout)


if __name__ == "__main__":
    _main()
