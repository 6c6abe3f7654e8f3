"""Set-up that fails in the paused child, though the probes said yes: nothing is executed, or it is told."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from durable_supervisor.model.enforcement import AXES, axis_report
from durable_supervisor.sandbox.calls import seccomp
from durable_supervisor.sandbox.files import landlock
from durable_supervisor.sandbox.plan import Files, Plan
from durable_supervisor.sandbox.report import LANDLOCK
from tests.policy.carry_out import NotExecuted, carried_out
from tests.support import PATIENCE

SOURCE = Path(__file__).parents[2] / "src"
LACKING = ("user_namespaces",)


@pytest.fixture
def able() -> None:
    if not seccomp.probe() or landlock.probe() < 3:
        pytest.skip("needs a system call filter and Landlock")


def a_plan(folder: Path, *required: str) -> Plan:
    """No network, one directory to write; everything in namespaces, as a plain user makes them."""
    plan = Plan()
    status = folder.stat()
    grants = [(str(folder), "write", status.st_dev, status.st_ino)]
    plan.files = Files(LANDLOCK, grants, abi=landlock.probe(), mounts=True)
    plan.network = {"mode": "none", "mechanism": "namespace"}
    plan.namespaces = {"user": True, "net": True, "mount": True}
    plan.privileges = plan.landlock_scope = True
    plan.seccomp = {"sockets": "own_namespace", "io_uring": True, "user_namespaces": True}
    planned = {
        "tree": "cgroup.kill",
        "files": "landlock",
        "network": "namespace",
        "memory": "cgroup_v2",
        "privileges": "no_new_privs",
    }
    for axis in AXES:
        report = axis_report(True, "full", planned[axis]) if axis in planned else axis_report(None)
        plan.axes[axis] = {**report, "required": axis in required}
    return plan


SCRIPT = "touch made; chmod 700 /usr/bin 2>/dev/null || echo held"
NET = "import socket; socket.socket(socket.AF_INET)"


@pytest.mark.usefixtures("able")
def test_as_planned(tmp_path: Path) -> None:
    ended = carried_out(a_plan(tmp_path), ["/bin/sh", "-c", SCRIPT], str(tmp_path))
    assert (ended.exit_code, ended.lines) == (0, ["held"])
    assert {ended.report[axis]["applied"] for axis in ("files", "network", "privileges")} == {"full"}


@pytest.mark.usefixtures("able")
def test_without_namespaces_what_is_left_is_told(tmp_path: Path) -> None:
    """No network is held by the filter instead; open metadata and open groups make axes partial."""
    argv = ["/usr/bin/python3", "-c", NET]
    ended = carried_out(a_plan(tmp_path), argv, str(tmp_path), without=LACKING)
    assert "PermissionError" in "".join(ended.lines)
    network, files = ended.report["network"], ended.report["files"]
    assert (network["applied"], network["mechanism"]) == ("full", "seccomp")
    assert files["applied"] == "partial"
    assert "no user namespace" in files["reason"]
    memory, tree = ended.report["memory"], ended.report["tree"]
    assert (memory["applied"], memory["mechanism"]) == ("partial", "cgroup_v2")
    assert (tree["applied"], tree["mechanism"]) == ("full", "cgroup.kill"), "held without namespaces"


@pytest.mark.usefixtures("able")
def test_what_is_required_and_not_to_be_had_is_never_executed(tmp_path: Path) -> None:
    with pytest.raises(NotExecuted) as caught:
        carried_out(a_plan(tmp_path, "files"), ["/bin/sh", "-c", SCRIPT], str(tmp_path), without=LACKING)
    assert caught.value.args[0] == "files"
    assert not (tmp_path / "made").exists()


@pytest.mark.usefixtures("able")
def test_a_grant_that_is_another_directory_by_now_is_refused_also_at_best_effort(tmp_path: Path) -> None:
    plan = a_plan(tmp_path)
    assert plan.files is not None
    path, access, device, inode = plan.files.grants[0]
    plan.files.grants = [(path, access, device, inode + 1)]
    with pytest.raises(NotExecuted) as caught:
        carried_out(plan, ["/bin/sh", "-c", SCRIPT], str(tmp_path))
    assert caught.value.args == ("files", "a grant is not what it was when the run was admitted")
    assert not (tmp_path / "made").exists()


@pytest.mark.usefixtures("able")
@pytest.mark.parametrize("granted", ["/", None], ids=["all", "the directory above"])
def test_who_stands_in_what_is_hidden_by_now_is_never_executed(tmp_path: Path, granted: str | None) -> None:
    """A link that is turned after the admission may have the working directory lead there."""
    own = tmp_path / "own"
    own.mkdir()
    plan = a_plan(Path(granted or tmp_path))
    assert plan.files is not None
    plan.files.hidden = str(own)
    with pytest.raises(NotExecuted) as caught:
        carried_out(plan, ["/bin/sh", "-c", "touch made"], str(own))
    assert caught.value.args == ("files", "the working directory was replaced meanwhile")
    assert not (own / "made").exists()


# More descriptors than there can be: the kernel refuses that to everybody, root included.
TOO_MANY_FILES = (resource.RLIMIT_NOFILE, resource.RLIM_INFINITY, resource.RLIM_INFINITY)


def a_limit_that_cannot_be_set(required: bool) -> Plan:
    plan = Plan()
    plan.rlimits = [TOO_MANY_FILES]
    for axis in AXES:
        plan.axes[axis] = {**axis_report(None), "required": False}
    plan.axes["open_files"] = {**axis_report(3, "full", "rlimit"), "required": required}
    return plan


def test_a_limit_that_could_not_be_set_is_told() -> None:
    ended = carried_out(a_limit_that_cannot_be_set(required=False), ["/bin/true"], "/")
    open_files = ended.report["open_files"]
    assert (open_files["applied"], open_files["mechanism"]) == ("none", None)
    assert "setrlimit" in open_files["reason"]


def test_a_required_limit_that_could_not_be_set_refuses_the_start(tmp_path: Path) -> None:
    argv = ["/bin/touch", str(tmp_path / "made")]
    with pytest.raises(NotExecuted) as caught:
        carried_out(a_limit_that_cannot_be_set(required=True), argv, "/")
    assert caught.value.args[0] == "open_files"
    assert not (tmp_path / "made").exists()


GATE = """
    import os, signal, sys
    sys.path.insert(0, sys.argv[1])
    from durable_supervisor.process.gate import fork_paused
    from durable_supervisor.process.program import Program, StartFailure, Stdio

    def confine():
        {confine}

    program = Program("/bin/touch", ["touch", sys.argv[2]], "/", {{}}, 0o077)
    try:
        paused = fork_paused(program, Stdio(0, 1, 2), confine)
    except StartFailure as failure:
        print(failure.step, failure.code)
        sys.exit()
    print(paused.report)
    {then}
"""


def gate(tmp_path: Path, confine: str, then: str = "paused.discard()") -> subprocess.CompletedProcess[str]:
    """A worker's side of the gate, in a process of its own; the program would make ``tmp_path/made``."""
    code = textwrap.dedent(GATE).format(confine=confine, then=then)
    argv = [sys.executable, "-I", "-S", "-c", code, str(SOURCE), str(tmp_path / "made")]
    return subprocess.run(argv, capture_output=True, text=True, timeout=30, check=False)


@pytest.mark.parametrize(
    ("confine", "said"),
    [
        ("raise OSError(28, 'x')", "confine 28"),
        ("raise ValueError", "confine 22"),
        ("raise MemoryError", "confine 12"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "confine 5"),
        ("return b''", "confine 5"),
        ("return b'x' * 3", "b'xxx'"),
    ],
)
def test_a_program_that_could_not_be_confined_is_never_executed(
    tmp_path: Path, confine: str, said: str
) -> None:
    done = gate(tmp_path, confine)
    assert done.stdout.strip() == said
    assert not (tmp_path / "made").exists()


def test_a_set_up_that_takes_too_long_is_given_up(tmp_path: Path) -> None:
    """As in a file system that does not answer."""
    code = textwrap.dedent("""
        import os, signal, sys
        sys.path.insert(0, sys.argv[1])
        from durable_supervisor.process import gate
        from durable_supervisor.process.program import ConfinementRefused, Program, Stdio

        def confine():
            os.kill(os.getpid(), signal.SIGSTOP)
            return b"confined"

        gate.CONFINE_SECONDS = 0.2
        program = Program("/bin/touch", ["touch", sys.argv[2]], "/", {}, 0o077)
        try:
            gate.fork_paused(program, Stdio(0, 1, 2), confine)
        except ConfinementRefused as refusal:
            print(refusal.axis, refusal.reason)
        print(os.waitstatus_to_exitcode(os.wait()[1]))
    """)
    argv = [sys.executable, "-I", "-S", "-c", code, str(SOURCE), str(tmp_path / "made")]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=30, check=True)
    said, status = done.stdout.splitlines()
    assert said.startswith("files set-up took longer than 0.2 s")
    assert int(status) == -signal.SIGKILL
    assert not (tmp_path / "made").exists()


def test_a_confined_program_is_executed_once_released(tmp_path: Path) -> None:
    done = gate(tmp_path, "return b'r' * 200_000", "paused.release(); os.waitpid(paused.pid, 0)")
    assert len(done.stdout.strip()) == 200_003
    assert (tmp_path / "made").exists()


def test_a_worker_that_dies_while_its_program_is_confined_leaves_nothing_to_execute(tmp_path: Path) -> None:
    confine = "os.kill(os.getppid(), signal.SIGKILL); os.read(0, 1); return b'confined'"
    read, write = os.pipe()
    code = textwrap.dedent(GATE).format(confine=confine, then="paused.release()")
    argv = [sys.executable, "-I", "-S", "-c", code, str(SOURCE), str(tmp_path / "made")]
    with subprocess.Popen(argv, stdin=read, stdout=subprocess.PIPE) as worker:
        os.close(read)
        assert worker.wait(timeout=PATIENCE) == -signal.SIGKILL
        os.close(write)  # only now the child goes on, to a gate that nobody will open
        assert worker.stdout is not None
        assert worker.stdout.read() == b"", "end-of-file: the child is gone too"
    assert not (tmp_path / "made").exists()
