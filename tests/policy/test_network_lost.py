"""A namespace that could be made when it was tried, and cannot when it is needed: there are no more."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from tests.contract.hosts import ROOT

# In a user namespace of its own, a process may lower how many others can be made (namespaces(7)).
CONFINED = """
import json, socket, sys
from durable_supervisor.sandbox import child, namespaces
from durable_supervisor.sandbox.plan import Plan, Refused

if not namespaces.probe()["user"]:
    print("null")
    sys.exit()
mode, required = sys.argv[1:]
namespaces.enter({"user": True, "net": False, "mount": False})
with open("/proc/sys/user/max_net_namespaces", "w") as file:
    file.write("0")
plan = Plan()
plan.network = {"mode": mode, "mechanism": "namespace"}
plan.namespaces["net"] = True
plan.privileges = True
plan.seccomp = {"sockets": "own_namespace", "io_uring": True, "user_namespaces": True}
plan.axes = {"network": {"required": required == "required"}}
try:
    answer = {"changes": child.confine(plan, sys.executable, {}, terminal=False)}
    socket.socket().close()
except Refused as refusal:
    answer = {"refused": refusal.axis, "reason": refusal.reason}
except PermissionError:
    answer["sockets"] = "refused"
print(json.dumps(answer))
"""


def confined(mode: str, level: str) -> Any:
    command = [sys.executable, "-c", CONFINED, mode, level]
    ended = subprocess.run(command, env={"PYTHONPATH": f"{ROOT}/src"}, capture_output=True, check=False)
    assert ended.returncode == 0, ended.stderr.decode()
    answer = json.loads(ended.stdout)
    if answer is None:
        pytest.skip("no user namespaces here, in which the kernel's limits can be lowered")
    return answer


@pytest.mark.parametrize("level", ["best_effort", "required"])
def test_none_is_held_by_the_filter_alone(level: str) -> None:
    held = {"applied": "full", "mechanism": "seccomp", "reason": None}
    assert confined("none", level) == {"changes": {"network": held}, "sockets": "refused"}


def test_a_loopback_is_reported_as_missing() -> None:
    answer = confined("loopback", "best_effort")
    report = answer["changes"]["network"]
    assert (report["applied"], report["mechanism"]) == ("none", None)
    assert "No space left" in report["reason"]
    assert "sockets" not in answer  # they can be made, as the report says


def test_a_required_loopback_refuses_the_start() -> None:
    answer = confined("loopback", "required")
    assert answer["refused"] == "network"
    assert "No space left" in answer["reason"]
