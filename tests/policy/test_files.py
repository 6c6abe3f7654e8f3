"""Grants hold against a program that tries every way around them; and what they allow works."""

from __future__ import annotations

import os
import re
import shutil
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from durable_supervisor import Command, Grant, Limits, Policy, Supervisor, SupervisorError, Terminal
from durable_supervisor.model.policy import Access, FilesBackend
from durable_supervisor.sandbox import namespaces
from durable_supervisor.sandbox.files import bubblewrap, landlock, paths
from durable_supervisor.sandbox.plan import Plan
from durable_supervisor.supervisor.policy.confinement import Asked, confinement
from durable_supervisor.supervisor.policy.files import Found
from durable_supervisor.supervisor.policy.probing import machine_facts
from tests.contract.runs import Runs
from tests.policy.carry_out import carried_out
from tests.policy.confined import Confined, attempts
from tests.policy.conftest import Hostile

pytestmark = pytest.mark.asyncio

# Root alone opens files by handle; not every file system has flags and attributes.
NOT_EVERYWHERE = {
    "outside_handle",
    *(f"{folder}_set{what}" for folder in ("granted", "outside") for what in ("flags", "xattr")),
}


METADATA = ("chmod", "chown", "utimes", "setxattr")


class Tree:
    """A directory to read, one to write, one that is not granted; each with the same things in it."""

    def __init__(self, root: Path) -> None:
        self.readable, self.writable, self.outside = root / "readable", root / "writable", root / "outside"
        for folder in (self.readable, self.writable, self.outside):
            folder.mkdir()
            (folder / "file").write_text("secret\n")
            (folder / "empty").mkdir()
            shutil.copy("/bin/true", folder / "program")

    def policy(self, backend: FilesBackend = "auto") -> Policy:
        grants = [Grant(self.readable, "read"), Grant(self.writable, "write")]
        return Policy(filesystem=grants, files_backend=backend)

    def argv(self, program: str) -> list[str]:
        return [program, str(self.readable), str(self.writable), str(self.outside)]


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[Tree]:
    """With somebody who listens on a socket outside."""
    made = Tree(tmp_path)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(made.outside / "socket"))
        yield made


def needs(backend: str) -> None:
    if backend == "landlock" and landlock.probe() < 3:
        pytest.skip("the kernel has no Landlock that holds truncation")
    if backend == "bubblewrap" and bubblewrap.probe() is None:
        pytest.skip("there is no bubblewrap that works here")


def planned(policy: Policy) -> Plan:
    """As on this machine, were it not for its namespaces."""
    grants = []
    for grant in policy.filesystem or ():
        path, status = str(grant.path), os.stat(grant.path)
        access = Access(grant.access).value
        grants.append(Found(path, access, status.st_dev, status.st_ino, os.path.realpath(path)))
    machine = replace(machine_facts(), namespaces={})
    plan = confinement(Asked(policy, Limits(), grants, os.geteuid()), machine)
    assert isinstance(plan, Plan)
    return plan


@pytest.mark.parametrize("terminal", [None, Terminal()], ids=["pipes", "terminal"])
@pytest.mark.parametrize("backend", ["landlock", "bubblewrap"])
async def test_no_way_leads_around_the_grants(
    confined: Confined, hostile: Hostile, tree: Tree, backend: FilesBackend, terminal: Terminal | None
) -> None:
    needs(backend)
    ended = await confined(tree.argv(hostile("files")), tree.policy(backend), cwd=tree.writable, pty=terminal)
    assert ended.exit_code == 0, ended.stderr
    found = attempts(ended.lines)
    assert len(found) == len(ended.lines) == 91
    allowed = {name for name in found if name.startswith("may_")}
    assert {name: found[name] for name in allowed if found[name] != "done"} == {}
    got = {name for name, result in found.items() if result == "done"} - allowed
    # A mount that cannot be written can still be executed from; and the grants may be in a /tmp, of its own.
    assert got <= ({"granted_execute", "tmp_list"} if backend == "bubblewrap" else set())
    assert ended.enforcement["files"]["mechanism"] == backend
    for folder in (tree.readable, tree.outside):
        assert (folder / "file").read_text() == "secret\n"


async def test_the_attempts_are_real(confined: Confined, hostile: Hostile, tree: Tree) -> None:
    """Without a policy the same program does what it cannot do with one."""
    ended = await confined([*tree.argv(hostile("files")), "harmless"], cwd=tree.writable)
    failed = {name for name, result in attempts(ended.lines).items() if result != "done"}
    assert failed <= NOT_EVERYWHERE


async def test_without_mounts_of_its_own_metadata_is_held_by_the_filter(tree: Tree, hostile: Hostile) -> None:
    """A machine that lets nobody make a mount namespace: with nothing to write to, no mode changes either."""
    needs("landlock")
    plan = planned(Policy(filesystem=[Grant(tree.readable, "read")]))
    assert plan.axes["files"]["applied"] == "full"
    argv = [hostile("files"), *[str(tree.readable)] * 2, str(tree.outside)]
    found = attempts(carried_out(plan, argv, str(tree.readable)).lines)
    assert found["may_read"] == "done"
    got = {name for name, result in found.items() if result == "done"}
    assert {name for name in got if not name.startswith("may_")} == set()
    assert {found[f"{folder}_{what}"] for folder in ("granted", "outside") for what in METADATA} == {"EPERM"}


async def test_what_a_program_needs_is_there(confined: Confined, tree: Tree) -> None:
    """Its interpreter, libraries, accounts, names, stdio by path, and the devices that everybody has."""
    needs("landlock")
    script = (
        "set -e; id -un; getent hosts localhost; date; cat file >/dev/null; echo by path >/dev/stdout;"
        "head -c 8 /dev/urandom | wc -c; grep -c . /etc/passwd >/dev/null; echo done"
    )
    ended = await confined(["sh", "-c", script], tree.policy("landlock"), cwd=tree.readable)
    assert ended.lines[-1] == "done", ended.stderr
    assert "by path" in ended.lines


@pytest.mark.parametrize("backend", ["landlock", "bubblewrap"])
async def test_a_program_outside_the_grants_is_executed_and_nothing_beside_it(
    confined: Confined, tree: Tree, backend: FilesBackend
) -> None:
    needs(backend)
    shell = tree.outside / "sh"
    shutil.copy("/bin/sh", shell)
    ended = await confined(
        [str(shell), "-c", f"{tree.outside}/program || echo $?"], tree.policy(backend), cwd=tree.writable
    )
    assert ended.lines == ["127" if backend == "bubblewrap" else "126"]
    assert ended.exit_code == 0


@pytest.mark.parametrize("backend", ["landlock", "bubblewrap"])
async def test_a_program_has_no_descriptor_of_ours(
    confined: Confined, tree: Tree, backend: FilesBackend
) -> None:
    """What confined it was held open until then: grants, the program, the filter."""
    needs(backend)
    python = shutil.which("python3", path="/usr/bin")
    if python is None:
        pytest.skip("needs a python in /usr/bin")
    shutil.copy(python, tree.outside / "python3")
    code = "import fcntl\nfor fd in range(1000):\n try: print(fd, fcntl.fcntl(fd, 1))\n except OSError: pass"
    ended = await confined(
        [str(tree.outside / "python3"), "-I", "-S", "-c", code], tree.policy(backend), cwd=tree.writable
    )
    assert ended.lines == ["0 0", "1 0", "2 0"], ended.stderr


@pytest.mark.parametrize("backend", ["landlock", "bubblewrap"])
async def test_a_grant_beneath_another_and_one_by_a_link(
    confined: Confined, tree: Tree, tmp_path: Path, backend: FilesBackend
) -> None:
    needs(backend)
    link = tmp_path / "link"
    link.symlink_to(tree.writable)
    grants = [Grant(link, "write"), Grant("/", "read")]
    script = (
        f"cat {tree.outside}/file; echo by link >{link}/new; cat {tree.writable}/new; : >{tree.outside}/new"
    )
    ended = await confined(
        ["sh", "-c", script], Policy(filesystem=grants, files_backend=backend), cwd=tree.readable
    )
    assert ended.lines == ["secret", "by link"], ended.stderr
    assert ended.exit_code == 2
    assert not (tree.outside / "new").exists()


async def test_what_may_be_executed_in_a_grant_is(confined: Confined, tree: Tree) -> None:
    script = tree.readable / "script"
    script.write_text("#!/bin/sh\necho $(cat file)\n")
    script.chmod(0o755)
    policy = Policy(filesystem=[Grant(tree.readable, "execute")])
    ended = await confined(["./script"], policy, cwd=tree.readable)
    assert ended.lines == ["secret"]


async def test_a_script_whose_interpreter_is_not_granted_never_starts(confined: Confined, tree: Tree) -> None:
    needs("landlock")
    shutil.copy("/bin/sh", tree.outside / "sh")
    script = tree.readable / "script"
    script.write_text(f"#!{tree.outside}/sh\n")
    script.chmod(0o755)
    policy = Policy(filesystem=[Grant(tree.readable, "execute")], files_backend="landlock")
    run = await confined.start(["./script"], policy, cwd=tree.readable)
    view = await confined.runs.wait(run)
    assert (view.state.value, view.reason) == ("not_started", "EACCES")


async def test_a_terminal_changes_nothing(confined: Confined, tree: Tree) -> None:
    """And the program may open its own again."""
    needs("landlock")
    script = f"cat {tree.outside}/file; stty size </dev/tty; echo x >$(tty) && echo opened"
    ended = await confined(
        ["sh", "-c", script], tree.policy("landlock"), cwd=tree.writable, pty=Terminal(columns=90, rows=30)
    )
    assert "secret" not in ended.stdout.decode()
    assert "Permission denied" in ended.lines[0]
    assert ended.lines[1:] == ["30 90", "x", "opened"]


async def test_a_grant_that_became_something_else_refuses_the_start(state_dir: Path, tree: Tree) -> None:
    """Between admission and start a link is turned to where nobody was allowed."""
    link = tree.writable / "link"
    link.symlink_to(tree.readable)
    async with Supervisor.open(state_dir, max_concurrent_runs=1) as sup:
        runs = Runs(sup, state_dir)
        first = await sup.start(Command(argv=["sleep", "60"]))
        waiting = await sup.start(
            Command(argv=["cat", str(link / "file")], cwd=tree.readable),
            policy=Policy(filesystem=[Grant(link, "read"), Grant(tree.readable, "read")]),
            queue=True,
        )
        link.unlink()
        link.symlink_to(tree.outside)
        await sup.stop(first.id, grace=0)
        view = await runs.wait(waiting)
        assert (view.state.value, view.reason) == ("not_started", "ENFORCEMENT_REFUSED")
        assert await runs.output(waiting) == b""


async def test_the_page_lists_the_base() -> None:
    page = (Path(__file__).parents[2] / "docs" / "policy.md").read_text()
    rows = {row.split("|")[1].strip(): row for row in page.splitlines() if row.startswith("| read")}
    listed = {allowed: set(re.findall(r"`([^`]+)`", row.split("|")[2])) for allowed, row in rows.items()}
    assert listed["read, execute"] == set(paths.EXECUTABLE)
    assert {f"/etc/{name}" for name in listed["read, in `/etc`"]} == set(paths.READABLE)
    assert listed["read, write"] == set(paths.DEVICES)


@pytest.mark.parametrize("backend", ["landlock", "bubblewrap"])
@pytest.mark.parametrize("access", ["read", "all"])
async def test_the_supervisors_own_directory_is_not_granted_with_what_it_lies_in(
    confined: Confined, state_dir: Path, backend: FilesBackend, access: Access
) -> None:
    """It has the records of this very run, and who writes there has others started, without a policy."""
    needs(backend)
    if backend == "landlock" and not namespaces.probe()["mount"]:
        pytest.skip("needs a mount namespace")
    above = str(state_dir.parent)
    policy = Policy(filesystem=[Grant(above, access)], files_backend=backend)
    script = f"ls -A {state_dir}; touch {state_dir}/new; rmdir {state_dir}; ls -A {above}"
    ended = await confined(["sh", "-c", script], policy, cwd=above)
    assert state_dir.name in ended.lines
    assert not {"journal.db", "runs", "new"} & set(ended.lines), ended.lines
    assert ended.exit_code == 0, ended.stderr


async def test_nor_by_a_grant_of_its_own(confined: Confined, state_dir: Path) -> None:
    for path in (state_dir, state_dir / "runs"):
        with pytest.raises(SupervisorError) as caught:
            await confined(["true"], Policy(filesystem=[Grant(path)]), cwd="/usr")
        assert caught.value.details["field"] == "policy.filesystem"
    with pytest.raises(SupervisorError) as caught:
        await confined(["true"], Policy(filesystem=[Grant(state_dir.parent)]), cwd=state_dir)
    assert caught.value.details["field"] == "cwd"
