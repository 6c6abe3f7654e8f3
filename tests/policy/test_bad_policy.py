"""What cannot be asked for is refused with the field's name, and leaves nothing behind."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from durable_supervisor import Access, Command, ErrorCode, Grant, Limits, Policy, SupervisorError
from durable_supervisor.model.request import StartRequest
from tests.contract.hosts import check_error, refused
from tests.contract.runs import open_runs


def asked(policy: Any = None, **limits: Any) -> StartRequest:
    return StartRequest(
        command=Command(argv=["true"]), request_id="one", limits=Limits(**limits), policy=policy
    )


REFUSED: list[tuple[str, Callable[[], object]]] = [
    ("policy", lambda: asked({"network": "none"})),
    ("policy.network", lambda: Policy(network="some")),  # type: ignore[arg-type]
    ("policy.files_backend", lambda: Policy(filesystem=[], files_backend="chroot")),  # type: ignore[arg-type]
    ("policy.files_backend", lambda: Policy(files_backend="landlock")),
    ("policy.filesystem", lambda: Grant("relative")),
    ("policy.filesystem", lambda: Grant("")),
    ("policy.filesystem", lambda: Grant("/a\0b")),
    ("policy.filesystem", lambda: Grant(7)),  # type: ignore[arg-type]
    ("policy.filesystem", lambda: Grant("/a", "rw")),  # type: ignore[arg-type]
    ("policy.filesystem", lambda: Policy(filesystem="/repo")),  # type: ignore[arg-type]
    ("policy.filesystem", lambda: Policy(filesystem=["/repo"])),  # type: ignore[list-item]
    ("policy.filesystem", lambda: Policy(filesystem=[Grant(f"/{n}") for n in range(257)])),
    ("policy.filesystem", lambda: Policy(filesystem=[Grant(f"/{n}" + "x" * 4000) for n in range(20)])),
    ("policy.filesystem", lambda: Policy(filesystem=[Grant("/a\ud800")])),
    ("policy.filesystem", lambda: Policy(filesystem=[Grant("/a", "read"), Grant("/a/../a", "all")])),
    ("policy.enforcement", lambda: Policy(enforcement="maybe")),  # type: ignore[arg-type]
    ("policy.enforcement", lambda: Policy(enforcement={"weather": "required"})),
    ("policy.enforcement[tree]", lambda: Policy(enforcement={"tree": "maybe"})),  # type: ignore[dict-item]
    ("policy.enforcement[network]", lambda: asked(Policy(enforcement={"network": "required"}))),
    ("policy.enforcement[memory]", lambda: asked(Policy(enforcement={"memory": "required"}))),
    ("limits.max_memory_bytes", lambda: Limits(max_memory_bytes=100)),
    ("limits.max_cpus", lambda: Limits(max_cpus=0)),
    ("limits.max_cpus", lambda: Limits(max_cpus=float("nan"))),
    ("limits.max_cpu_seconds", lambda: Limits(max_cpu_seconds=0)),
    ("limits.max_processes", lambda: Limits(max_processes=True)),
    ("limits.max_open_files", lambda: Limits(max_open_files=2)),
    ("limits.max_file_bytes", lambda: Limits(max_file_bytes=-1)),
    ("env[LD_PRELOAD]", lambda: Command(argv=["true"], env={"LD_PRELOAD": "/evil.so"})),
    ("secret_env[LD_AUDIT]", lambda: Command(argv=["true"], secret_env={"LD_AUDIT": "/evil-library.so"})),
    ("inherit_env[DYLD_X]", lambda: Command(argv=["true"], inherit_env=["DYLD_X"])),
    ("env[A]", lambda: Command(argv=["true"], env={"A": "a\0b"})),
    ("env", lambda: Command(argv=["true"], env={"A=B": "c"})),
    ("env", lambda: Command(argv=["true"], env={"A\0B": "c"})),
]


@pytest.mark.parametrize(("field", "make"), REFUSED, ids=[f"{n}-{row[0]}" for n, row in enumerate(REFUSED)])
def test_the_field_is_named(field: str, make: Callable[[], object]) -> None:
    with pytest.raises(SupervisorError) as caught:
        make()
    check_error(caught.value, ErrorCode.INVALID_REQUEST)
    assert caught.value.details["field"] == field


ORDERED = [("read", "execute"), ("read", "write"), ("read", "all"), ("execute", "all"), ("write", "all")]


@pytest.mark.parametrize(("less", "more"), ORDERED)
def test_beneath_a_grant_there_is_no_less(less: Any, more: Any) -> None:
    """What holds grants only adds: a part of a directory cannot be taken out again."""
    Policy(filesystem=[Grant("/a", less), Grant("/a/b/c", more), Grant("/ab", less)])
    with pytest.raises(SupervisorError) as caught:
        Policy(filesystem=[Grant("/a/b/c", less), Grant("/a", more)])
    assert caught.value.details["field"] == "policy.filesystem"
    with pytest.raises(SupervisorError):
        Policy(
            filesystem=[Grant("/"), Grant("/a"), Grant("/x", less), Grant("/x/y/z", more), Grant("/x/y/z/k")]
        )


def test_neither_does_one_of_two_that_differ() -> None:
    with pytest.raises(SupervisorError):
        Policy(filesystem=[Grant("/a", "write"), Grant("/a/b", "execute")])


def test_a_path_is_kept_as_the_kernel_would_take_it() -> None:
    assert Grant("//a//b/./c/..").to_dict() == {"path": "/a/b", "access": "read"}
    assert Grant(Path("/a"), Access.ALL).to_dict() == {"path": "/a", "access": "all"}
    policy = Policy(network="none", filesystem=[Grant("/a", "write")], enforcement={"files": "required"})
    assert Policy.from_dict(policy.to_dict()) == policy


async def test_grants_and_directory_are_looked_at_before_anything_is_written(
    state_dir: Path, tmp_path: Path
) -> None:
    work = tmp_path / "work"
    work.mkdir()
    (tmp_path / "link").symlink_to(work)
    (work / "inner").mkdir()
    cases: list[tuple[str, str, list[Grant]]] = [
        ("policy.filesystem", str(work), [Grant(work), Grant(tmp_path / "missing")]),
        ("policy.filesystem", str(work), [Grant(work, "all"), Grant(tmp_path / "link" / "inner")]),
        ("policy.filesystem", str(work), [Grant(work, "all"), Grant(tmp_path / "link")]),
        ("cwd", "/etc", [Grant(work)]),
        ("cwd", str(tmp_path), [Grant(work)]),
        ("cwd", str(work), []),
    ]
    async with open_runs(state_dir) as runs:
        for field, cwd, grants in cases:
            async with refused(ErrorCode.INVALID_REQUEST) as caught:
                await runs.sup.start(
                    Command(argv=["true"], cwd=cwd), request_id="one", policy=Policy(filesystem=grants)
                )
            assert caught().details["field"] == field, (cwd, grants)
        assert list((state_dir / "runs").rglob("*.log")) == []
        assert not (await runs.sup.list()).runs
        for place in (work, work / "inner", tmp_path / "link", Path("/usr")):
            policy = Policy(filesystem=[Grant(work, "all")])
            await runs.sup.start(Command(argv=["true"], cwd=place), policy=policy)


async def test_a_secret_in_a_grant_is_refused_since_policies_are_stored(
    state_dir: Path, tmp_path: Path
) -> None:
    secret = "hunter2-hunter2"
    folder = tmp_path / secret
    folder.mkdir()
    command = Command(argv=["true"], cwd=folder, secrets=[secret])
    async with open_runs(state_dir) as runs:
        async with refused(ErrorCode.INVALID_REQUEST) as caught:
            await runs.sup.start(command, policy=Policy(filesystem=[Grant(folder)]))
        assert caught().details["field"] == "policy.filesystem"
        assert secret not in str(caught().to_dict())


async def test_a_grant_that_cannot_be_looked_at(state_dir: Path, tmp_path: Path) -> None:
    """A name that is too long is nothing that exists; neither is what lies behind a file."""
    for path in ("/" + "x" * 300, "/etc/passwd/x", os.fspath(tmp_path / "loop")):
        (tmp_path / "loop").unlink(missing_ok=True)
        (tmp_path / "loop").symlink_to("loop")
        async with open_runs(state_dir) as runs:
            async with refused(ErrorCode.INVALID_REQUEST) as caught:
                await runs.sup.start(
                    Command(argv=["true"], cwd=tmp_path), policy=Policy(filesystem=[Grant(path)])
                )
            assert caught().details["field"] == "policy.filesystem"
