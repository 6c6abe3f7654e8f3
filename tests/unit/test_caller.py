"""What a run takes of the process that asks for it: as it is at that moment, whoever has changed it how."""

from __future__ import annotations

import os
from collections import UserDict
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from durable_supervisor.model.command import Command
from durable_supervisor.model.environment import BASE_NAMES, inherited_names, program_environment
from durable_supervisor.process import caller
from durable_supervisor.process.caller import (
    RUN_ID_VARIABLE,
    outer_run,
    own_directory,
    own_variables,
    read_umask,
    umask_in,
)
from durable_supervisor.supervisor.admission.host import read_host

NAMES = st.binary(min_size=1, max_size=6).filter(lambda raw: b"=" not in raw and b"\0" not in raw)
VALUES = st.binary(max_size=8).filter(lambda raw: b"\0" not in raw)


@contextmanager
def variables(added: dict[bytes, bytes]) -> Iterator[None]:
    before = dict(os.environb)
    os.environb.update(added)
    try:
        yield
    finally:
        os.environb.clear()
        os.environb.update(before)


def by_name(names: list[str]) -> dict[str, str]:
    return {name: os.environ[name] for name in names if name in os.environ}


# The environment.


@given(st.dictionaries(NAMES, VALUES, max_size=5), st.lists(NAMES, max_size=5))
def test_variables_are_those_of_os_environ_whatever_bytes_they_have(
    added: dict[bytes, bytes], others: list[bytes]
) -> None:
    names = [os.fsdecode(name) for name in (*added, *others, *added, b"PATH")]
    with variables(added):
        assert own_variables(names) == by_name(names)
        assert list(own_variables(names)) == list(by_name(names))


def test_the_looks_that_cost_no_calls_are_to_be_had() -> None:
    """With a Python that keeps the bytes elsewhere, the answers are the same, and slower."""
    assert caller._ENVIRON is type(os.environ)
    assert {os.fsencode(name) for name in os.environ} == set(os.environ._data)  # type: ignore[attr-defined]


def test_without_those_looks_the_variables_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ODD", os.fsdecode(b"\xff"))
    names = [*BASE_NAMES, "ODD", "NOT_THERE"]
    expected = own_variables(names)
    monkeypatch.setattr(caller, "_ENVIRON", None)
    assert own_variables(names) == expected == by_name(names)


def test_what_changes_between_two_looks_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    for value in ("one", "two"):
        monkeypatch.setenv("CHANGES", value)
        assert own_variables(["CHANGES"]) == {"CHANGES": value}
    monkeypatch.delenv("CHANGES")
    assert own_variables(["CHANGES"]) == {}


class HostsOwn(UserDict[str, str]):
    """It calls something else what `os.environ` calls so."""

    _data: ClassVar = {b"PATH": b"/elsewhere"}


@pytest.mark.parametrize("kind", [dict, HostsOwn])
def test_another_mapping_in_the_place_of_os_environ(
    monkeypatch: pytest.MonkeyPatch, kind: Callable[[dict[str, str]], MutableMapping[str, str]]
) -> None:
    monkeypatch.setattr(os, "environ", kind({"PATH": "/here", "OTHER": "x"}))
    assert own_variables(["PATH", "HOME"]) == {"PATH": "/here"}


def test_a_program_gets_what_it_would_get_of_the_whole_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ODD", os.fsdecode(b"\xff\x80"))
    monkeypatch.setenv("HOME", "of the host")
    monkeypatch.delenv("NOT_THERE", raising=False)
    monkeypatch.delenv("SHELL", raising=False)
    command = Command(argv=["x"], inherit_env=["ODD", "HOME", "NOT_THERE"], env={"LANG": "C", "B": "2"})
    found = program_environment(command, read_host(command).environ)
    assert found == program_environment(command, os.environ)
    assert list(found) == list(program_environment(command, os.environ))
    assert (os.fsencode(found["ODD"]), found["HOME"], found["LANG"]) == (b"\xff\x80", "of the host", "C")
    assert set(own_variables(inherited_names(command))) >= {"ODD", "HOME"}


def test_nothing_but_what_the_program_is_given_is_kept_of_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTHERS_SECRET", "hunter2hunter2")
    assert set(read_host(Command(argv=["x"])).environ) <= {*BASE_NAMES, RUN_ID_VARIABLE}


def test_the_outer_run_is_that_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(RUN_ID_VARIABLE, "0123456789abcdef")
    assert outer_run(os.environ) == read_host(Command(argv=["x"])).nested_in == "0123456789abcdef"
    assert outer_run({}) is None


# Umask and directory.


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077, 0o777])
def test_the_umask_is_read_and_not_changed(mask: int) -> None:
    before = os.umask(mask)
    try:
        assert read_umask() == mask
        assert read_host(Command(argv=["x"])).umask == mask
    finally:
        assert os.umask(before) == mask


def test_a_process_cannot_forge_its_umask_by_its_name() -> None:
    assert umask_in(b"Name:\t\\nUmask:\\t0\nUmask:\t0027\nState:\tR (running)\n") == 0o027
    assert umask_in(b"Name:\tx\nState:\tR (running)\n") == 0o022  # of a kernel that does not tell


def test_the_directory_is_absolute_and_normal(
    tmp_path: os.PathLike[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    inside = os.path.join(tmp_path, "a b")
    os.mkdir(inside)
    monkeypatch.chdir(os.path.join(inside, "..", "a b", "."))
    assert own_directory() == os.path.normpath(own_directory()) == os.path.realpath(inside)
