"""The state directory's path: any that the file system takes, or one clear refusal."""

from __future__ import annotations

import asyncio
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from durable_supervisor import Command, ErrorCode, Supervisor, SupervisorError
from tests.contract.hosts import check_error, host, open_error, works
from tests.support import PATIENCE


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(b"x" * 200, id="200-characters"),
        pytest.param(b"with spaces  and\ttab", id="spaces"),
        pytest.param(b"new\nline", id="newline"),
        pytest.param(b"not utf-8 \xff\xfe", id="not-utf-8"),
        pytest.param("ünï €".encode(), id="unicode"),
        pytest.param(b"?mode=memory&cache=shared#x%20", id="uri"),
        pytest.param(b"-rf", id="option"),
    ],
)
async def test_any_path_works(tmp_path: Path, name: bytes) -> None:
    path = os.path.join(os.fsencode(tmp_path), name)
    await works(path)


async def test_a_socket_path_far_beyond_its_limit_works(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 120) / ("e" * 120)
    await works(deep)


async def test_a_path_too_long_is_one_clear_refusal(tmp_path: Path) -> None:
    await open_error(tmp_path / ("x" * 256), ErrorCode.STATE_DIR_REFUSED)
    deep = tmp_path
    for _ in range(20):
        deep = deep / ("y" * 240)
    await open_error(deep, ErrorCode.STATE_DIR_REFUSED)
    assert list(tmp_path.iterdir()) == [], "nothing half-made"


async def test_a_path_of_more_directories_than_python_has_calls(tmp_path: Path) -> None:
    first = tmp_path / "deep"
    try:
        await open_error(f"{first}{'/d' * sys.getrecursionlimit()}", ErrorCode.STATE_DIR_REFUSED)
    finally:
        remove = ["rm", "-rf", str(first)]  # Python's own way is by recursion
        await asyncio.to_thread(subprocess.run, remove, check=True)


async def test_a_path_beyond_sqlites_limit_works_or_is_refused_whole(tmp_path: Path) -> None:
    """SQLite takes names up to some 500 bytes."""
    deep = tmp_path / ("x" * 240) / ("y" * 240)
    try:
        await works(deep)
    except SupervisorError as error:
        check_error(error, ErrorCode.STATE_DIR_REFUSED)


async def test_a_relative_path_is_fixed_at_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    async with Supervisor.open("relative") as sup:
        assert sup.state_dir == str(tmp_path / "relative")
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.chdir(tmp_path / "elsewhere")
        run = await sup.start(Command(argv=["pwd"]))
        await sup.wait(run.id, timeout=PATIENCE)
        page = await sup.events(run.id)
    assert [one.text for one in page.events if one.kind == "output"] == [f"{tmp_path}/elsewhere\n"]


async def test_a_nul_in_the_path_is_refused(tmp_path: Path) -> None:
    await open_error(f"{tmp_path}/a\0b", ErrorCode.STATE_DIR_REFUSED)


async def test_a_symlink_to_a_good_directory_is_that_directory(tmp_path: Path, state_dir: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(state_dir)
    async with Supervisor.open(link) as sup:
        assert sup.state_dir == str(state_dir)
        await open_error(state_dir, ErrorCode.STATE_DIR_IN_USE)


async def test_the_variable_and_the_users_directory(tmp_path: Path) -> None:
    facts = host(
        "async with Supervisor.open() as sup:\n    report(path=sup.state_dir)",
        tmp_path,
        tmp_path,
        env={"DURABLE_SUPERVISOR_STATE_DIR": str(tmp_path / "chosen")},
    )
    assert facts["path"] == str(tmp_path / "chosen")
    facts = host(
        "async with Supervisor.open() as sup:\n    report(path=sup.state_dir)",
        tmp_path,
        tmp_path,
        env={"DURABLE_SUPERVISOR_STATE_DIR": "", "XDG_STATE_HOME": str(tmp_path / "xdg" / "state")},
    )
    assert facts["path"] == str(tmp_path / "xdg" / "state" / "durable_supervisor")
    assert stat.S_IMODE((tmp_path / "xdg").stat().st_mode) == 0o700, "what it makes on the way is private too"
