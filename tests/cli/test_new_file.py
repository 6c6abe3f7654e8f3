"""A file that is there whole or not at all, and over nobody else's."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from durable_supervisor.cli.bundles.new_file import NewFile
from durable_supervisor.model.errors import SupervisorError


def names(place: Path) -> list[str]:
    return sorted(path.name for path in place.iterdir())


def test_it_appears_when_it_is_complete(tmp_path: Path) -> None:
    with NewFile(str(tmp_path / "a")) as file:
        file.write(b"one")
        assert "a" not in names(tmp_path)
        file.keep()
    assert names(tmp_path) == ["a"]
    assert (tmp_path / "a").read_bytes() == b"one"
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o600


def make(path: Path, meanwhile: Callable[[], object]) -> None:
    with NewFile(str(path)) as file:
        file.write(b"one")
        meanwhile()
        file.keep()


def fail() -> None:
    raise KeyError


def test_nothing_is_left_of_one_that_failed(tmp_path: Path) -> None:
    with pytest.raises(KeyError):
        make(tmp_path / "a", fail)
    assert names(tmp_path) == []


def test_what_came_meanwhile_stays(tmp_path: Path) -> None:
    with pytest.raises(SupervisorError, match="is there already"):
        make(tmp_path / "a", lambda: (tmp_path / "a").write_text("mine"))
    assert names(tmp_path) == ["a"]
    assert (tmp_path / "a").read_text() == "mine"


def test_a_file_system_without_hard_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_links(source: str, target: str) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", no_links)
    make(tmp_path / "a", lambda: None)
    with pytest.raises(SupervisorError, match="is there already"):
        make(tmp_path / "b", lambda: (tmp_path / "b").symlink_to("nowhere"))
    assert names(tmp_path) == ["a", "b"]


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(SupervisorError, match="is there already"), NewFile(str(tmp_path / "a")):
        pass
    with NewFile(str(tmp_path / "a"), force=True) as file:
        file.keep()
    assert names(tmp_path) == ["a"]
    assert not (tmp_path / "a").is_symlink()
