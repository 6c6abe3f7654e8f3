"""What a machine can enforce: asked in process, and from a machine where something is missing."""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from durable_supervisor import Capabilities, capabilities
from durable_supervisor.model.enforcement import AXES
from durable_supervisor.sandbox import probe
from durable_supervisor.sandbox.facts import Facts
from durable_supervisor.sandbox.probe import PROBES
from durable_supervisor.supervisor.policy import probing
from durable_supervisor.supervisor.policy.capabilities import answers
from durable_supervisor.wire.documents import validate
from tests.support import eventually


def test_every_axis_has_an_answer_that_is_a_document() -> None:
    found = capabilities()
    assert {one.axis for one in found.capabilities} == set(AXES)
    assert found.uid == os.geteuid()
    assert found.probes["failed"] == {}
    assert all((one.reason is None) == (one.applied == "full") for one in found.capabilities)
    validate("capabilities", found.to_dict())
    assert Capabilities.from_dict(json.loads(json.dumps(found.to_dict()))) == found


def test_the_probe_is_asked_once() -> None:
    assert probing.machine_facts() is probing.machine_facts()


def test_a_machine_that_can_do_nothing_says_why() -> None:
    found = answers(Facts.from_lines(b"", "it crashed"), 1000)
    lacking = {one.axis for one in found if one.applied == "none"}
    assert lacking == {"files", "network", "cpu", "privileges"}
    assert all("it crashed" in str(one.reason) for one in found if one.applied != "full")


def test_a_probe_that_cannot_be_started_has_found_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """And is no fault of the request: it may be asked again."""
    monkeypatch.setattr(sys, "executable", "/nonexistent")
    facts = probing.probe()
    assert set(facts.failed) == set(PROBES)
    assert "cannot be started" in facts.failed["landlock"]


def test_a_probe_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With what it started; what it had said by then counts."""
    hanging = tmp_path / "probe.py"
    hanging.write_text(
        "import os, time\n"
        'os.write(1, b\'{"probe": "landlock", "found": 7}\\n\' + str(os.getpid()).encode())\n'
        "os.fork()\n"
        "time.sleep(600)\n"
    )
    monkeypatch.setattr(probe, "__file__", str(hanging))
    monkeypatch.setattr(probing, "_SECONDS", 3.0)  # a slow machine begins it by then
    facts = probing.probe()
    assert facts.landlock == 7
    assert facts.failed["seccomp"] == "no answer within 3 s"
    assert eventually(lambda: not processes_of(str(hanging)))


def processes_of(script: str) -> list[int]:
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                words = Path("/proc", name, "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if script.encode() in words:
                found.append(int(name))
    return found


def test_what_failed_is_asked_again_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probing, "_known", {})
    monkeypatch.setattr(sys, "executable", "/nonexistent")
    failed = probing.machine_facts()
    assert failed.failed
    monkeypatch.undo()
    monkeypatch.setattr(probing, "_known", {os.geteuid(): (failed, time.monotonic() + 60)})
    assert probing.machine_facts() is failed
    monkeypatch.setattr(probing, "_known", {os.geteuid(): (failed, time.monotonic())})
    assert not probing.machine_facts().failed


def test_who_is_short_of_descriptors_learns_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does anybody else from it."""
    monkeypatch.setattr(probing, "_known", {})
    kept = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.open("/dev/null", os.O_RDONLY)  # the lowest number that is not in use
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, kept[1]))
    try:
        with pytest.raises(OSError, match="Too many open files"):
            probing.machine_facts()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, kept)
    assert not probing.machine_facts().failed


def test_what_is_missing_is_looked_for_again() -> None:
    found = probing.machine_facts()
    assert not replace(found, seccomp=False).complete
    assert not replace(found, cgroups={"v2": None, "v1": {}}).complete
    assert not replace(found, namespaces={"user": True, "net": True}).complete
