"""Which file a program's first word stands for."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from durable_supervisor.process.program import StartFailure, canonical, resolve


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name, mode in (
        ("bin/tool", 0o755),
        ("other/tool", 0o755),
        ("plain/tool", 0o644),
        ("cwd/tool", 0o755),
    ):
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_text("#!/bin/sh\n")
        file.chmod(mode)
    (tmp_path / "folder" / "tool").mkdir(parents=True)
    (tmp_path / "cwd" / "below").symlink_to(tmp_path / "other")
    return tmp_path


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("{root}/none:{root}/bin:{root}/other", "bin/tool"),
        ("{root}/other/:{root}/bin", "other/tool"),
        ("{root}/plain:{root}/folder:{root}/bin", "bin/tool"),  # neither may be executed
        ("{root}/bin/tool:{root}/other", "other/tool"),  # a file is no folder
        ("", "cwd/tool"),
        ("{root}/none::{root}/bin", "cwd/tool"),
        ("below", "cwd/below/tool"),
    ],
)
def test_the_first_that_may_be_executed(root: Path, path: str, found: str) -> None:
    assert resolve("tool", str(root / "cwd"), path.format(root=root)) == str(root / found)


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("{root}/none", errno.ENOENT),
        ("{root}/plain:{root}/none", errno.EACCES),
        ("{root}/folder", errno.EACCES),
    ],
)
def test_one_that_may_not_be_executed_says_more_than_none(root: Path, path: str, code: int) -> None:
    with pytest.raises(StartFailure) as failure:
        resolve("tool", "/", path.format(root=root))
    assert failure.value.code == code


def test_the_root_is_a_folder_like_any_other() -> None:
    with pytest.raises(StartFailure):
        resolve("no-such-tool", "/", "/:")


@pytest.mark.parametrize("name", ["plain", "ends in (deleted)", "\udcff"])
def test_the_canonical_path_is_what_realpath_says(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / name).touch()
    (tmp_path / "to_folder").symlink_to("folder")
    (tmp_path / "to_file").symlink_to(f"to_folder/../folder/{name}")
    for path in (folder / name, tmp_path / "to_folder" / name, tmp_path / "to_file", tmp_path / "none", "/"):
        assert canonical(str(path)) == os.path.realpath(path)
