"""What may be asked for, and what is refused before anything is written."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from durable_supervisor.model.command import (
    DEFAULT_GRACE,
    DEFAULT_OUTPUT_BYTES,
    MAX_LABELS,
    MAX_OUTPUT_BYTES,
    MAX_SECONDS,
    MIB,
    Command,
    Completion,
    Limits,
    OnLimit,
)
from durable_supervisor.model.errors import ErrorCode, Phase, SupervisorError
from durable_supervisor.model.request import DEFAULT_OWNER, StartRequest, check_request_id
from durable_supervisor.model.terminal import Terminal
from durable_supervisor.model.winsize import MAX_SIDE

SECRET = "hunter2hunter2"


def refused(make: Callable[[], object], field: str) -> SupervisorError:
    """The INVALID_REQUEST that ``make`` must raise, naming ``field``."""
    with pytest.raises(SupervisorError) as caught:
        make()
    error = caught.value
    assert error.code is ErrorCode.INVALID_REQUEST
    assert error.phase is Phase.VALIDATE
    assert error.details == {"field": field}
    assert not error.retryable
    assert error.hint
    assert "\n" not in error.message
    return error


# --- Terminal


def test_a_terminal_is_a_usual_one_where_nothing_is_said() -> None:
    assert Terminal().to_dict() == {"columns": 80, "rows": 24, "term": "xterm-256color"}
    assert Command(argv=["x"]).pty is None


@pytest.mark.parametrize("name", ["columns", "rows"])
@pytest.mark.parametrize("value", [0, -1, MAX_SIDE + 1, 80.0, "80", True, None, 10**400])
def test_sizes_no_terminal_has_are_refused(name: str, value: object) -> None:
    refused(lambda: Terminal(**{name: value}), f"pty.{name}")  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [1, 80, MAX_SIDE])
def test_sizes_that_one_may_have_are_kept(value: int) -> None:
    assert (Terminal(columns=value).columns, Terminal(rows=value).rows) == (value, value)


@pytest.mark.parametrize("term", ["", " ", "a b", "a/b", "-x", "é", "x\0", "x\n", "x" * 65, None, 7])
def test_kinds_no_terminal_has_are_refused(term: object) -> None:
    refused(lambda: Terminal(term=term), "pty.term")  # type: ignore[arg-type]


@pytest.mark.parametrize("term", ["dumb", "screen.xterm-256color", "rxvt+pcfkeys", "9term", "st_x"])
def test_kinds_of_terminals_are_kept(term: str) -> None:
    assert Terminal(term=term).term == term


@pytest.mark.parametrize("pty", [True, (80, 24), {"columns": 80}, "80x24"])
def test_what_is_no_terminal_is_refused(pty: object) -> None:
    refused(lambda: Command(argv=["x"], pty=pty), "pty")  # type: ignore[arg-type]


# --- Limits


def test_defaults_are_the_documented_ones() -> None:
    limits = Limits()
    assert limits.timeout is None
    assert limits.idle_timeout is None
    assert limits.grace == DEFAULT_GRACE == 10
    assert limits.max_stdout_bytes == limits.max_stderr_bytes == DEFAULT_OUTPUT_BYTES == 64 * MIB
    assert limits.on_limit is OnLimit.TRUNCATE
    assert StartRequest(command=Command(argv=["x"]), request_id="r").completion is Completion.LEADER


@pytest.mark.parametrize("name", ["timeout", "idle_timeout", "grace"])
@pytest.mark.parametrize(
    "value",
    [-1, -0.001, math.nan, math.inf, -math.inf, MAX_SECONDS * 1.01, "10", True, [], 10**400],
    ids=lambda value: repr(value)[:12],
)
def test_times_outside_their_range_are_refused(name: str, value: object) -> None:
    refused(lambda: Limits(**{name: value}), f"limits.{name}")  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["timeout", "idle_timeout"])
def test_a_deadline_of_zero_is_refused(name: str) -> None:
    refused(lambda: Limits(**{name: 0}), f"limits.{name}")  # type: ignore[arg-type]


def test_grace_may_be_zero_but_not_none() -> None:
    assert Limits(grace=0).grace == 0
    refused(lambda: Limits(grace=None), "limits.grace")  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["timeout", "idle_timeout", "grace"])
@pytest.mark.parametrize("value", [0.001, 1, 600, MAX_SECONDS])
def test_times_inside_their_range_are_kept(name: str, value: float) -> None:
    assert getattr(Limits(**{name: value}), name) == value  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["max_stdout_bytes", "max_stderr_bytes"])
@pytest.mark.parametrize("value", [0, -1, MAX_OUTPUT_BYTES + 1, 1.5, math.inf, None, True, "64"])
def test_sizes_outside_their_range_are_refused(name: str, value: object) -> None:
    refused(lambda: Limits(**{name: value}), f"limits.{name}")  # type: ignore[arg-type]


def test_sizes_at_their_bounds_are_kept() -> None:
    limits = Limits(max_stdout_bytes=1, max_stderr_bytes=MAX_OUTPUT_BYTES)
    assert (limits.max_stdout_bytes, limits.max_stderr_bytes) == (1, MAX_OUTPUT_BYTES)


def test_on_limit_is_one_of_two_words() -> None:
    assert Limits(on_limit="terminate").on_limit is OnLimit.TERMINATE  # type: ignore[arg-type]
    for value in ("stop", "", None, 3, "TRUNCATE"):
        refused(lambda value=value: Limits(on_limit=value), "limits.on_limit")  # type: ignore[misc]


def test_the_json_form_has_every_field() -> None:
    assert Limits(timeout=5, on_limit=OnLimit.TERMINATE).to_dict() == {
        "timeout": 5,
        "idle_timeout": None,
        "grace": 10.0,
        "max_stdout_bytes": 64 * MIB,
        "max_stderr_bytes": 64 * MIB,
        "on_limit": "terminate",
    }


# --- Command


@pytest.mark.parametrize(
    ("argv", "field"),
    [
        ([], "argv"),
        ((), "argv"),
        ("ls -l", "argv"),
        (b"ls", "argv"),
        (None, "argv"),
        ({"ls"}, "argv"),
        ([""], "argv[0]"),
        (["ls", 3], "argv[1]"),
        (["ls", None], "argv[1]"),
        (["l\0s"], "argv[0]"),
        (["ls", "a\0b"], "argv[1]"),
        (["ls", b"a\0b"], "argv[1]"),
        (["ls", "\ud800"], "argv[1]"),
    ],
)
def test_a_bad_argv_is_refused(argv: Any, field: str) -> None:
    refused(lambda: Command(argv=argv), field)


def test_argv_becomes_a_tuple_of_strings() -> None:
    command = Command(argv=["cat", Path("/etc/hosts"), b"\xff", ""])  # type: ignore[list-item]
    assert command.argv == ("cat", "/etc/hosts", "\udcff", "")


@pytest.mark.parametrize("cwd", ["", "a\0b", "\ud800", 3, ["/"]])
def test_a_bad_cwd_is_refused(cwd: Any) -> None:
    refused(lambda: Command(argv=["x"], cwd=cwd), "cwd")


def test_cwd_may_be_a_path(tmp_path: Path) -> None:
    assert Command(argv=["x"], cwd=tmp_path).cwd == str(tmp_path)
    assert Command(argv=["x"]).cwd is None


@pytest.mark.parametrize("where", ["env", "secret_env"])
@pytest.mark.parametrize(
    ("env", "suffix"),
    [
        ({"": "v"}, ""),
        ({"A=B": "v"}, ""),
        ({"A\0": "v"}, ""),
        ({3: "v"}, ""),
        ([("A", "v")], ""),
        (None, ""),
        ({"A": 3}, "[A]"),
        ({"A": None}, "[A]"),
        ({"A": "with\0nul"}, "[A]"),
        ({"A": "half a pair: \ud800"}, "[A]"),
        ({"\ud800": "v"}, ""),
        ({"LD_PRELOAD": "x.so and more"}, "[LD_PRELOAD]"),
        ({"LD_AUDIT": "x.so and more"}, "[LD_AUDIT]"),
        ({"DYLD_INSERT_LIBRARIES": "x.so"}, "[DYLD_INSERT_LIBRARIES]"),
    ],
)
def test_a_bad_environment_is_refused(where: str, env: Any, suffix: str) -> None:
    refused(lambda: Command(argv=["x"], **{where: env}), where + suffix)


@pytest.mark.parametrize("names", ["PATH", ["A=B"], [""], [3], None, {"A"}])
def test_bad_inherited_names_are_refused(names: Any) -> None:
    refused(lambda: Command(argv=["x"], inherit_env=names), "inherit_env")


def test_inherited_names_are_sorted_and_unique() -> None:
    assert Command(argv=["x"], inherit_env=["B", "A", "B"]).inherit_env == ("A", "B")
    refused(lambda: Command(argv=["x"], inherit_env=["LD_PRELOAD"]), "inherit_env[LD_PRELOAD]")


def test_a_variable_is_given_once() -> None:
    refused(lambda: Command(argv=["x"], env={"A": "v"}, secret_env={"A": SECRET}), "secret_env")


@pytest.mark.parametrize("value", ["", "tiny-pw", "1234567", "ééé"], ids=ascii)
def test_a_secret_under_eight_bytes_is_refused(value: str) -> None:
    error = refused(lambda: Command(argv=["x"], secret_env={"A": value}), "secret_env[A]")
    assert not value or value not in str(error)
    refused(lambda: Command(argv=["x"], secrets=[value]), "secrets")


def test_a_secret_of_eight_bytes_is_taken() -> None:
    assert Command(argv=["x"], secret_env={"A": "éééé"}, secrets=["12345678"]).secrets == ("12345678",)


@pytest.mark.parametrize("value", ["\0" * 9, "\ud800" * 9, 123456789, b"123456789", None])
def test_a_secret_is_a_string_without_nul(value: Any) -> None:
    refused(lambda: Command(argv=["x"], secrets=[value]), "secrets")


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("argv", ["", 0, [], False, {}, b"", None]),
        ("cwd", ["", 0, [], False, {}, b""]),
        ("env", ["", 0, [], (), False, b"", None]),
        ("secret_env", ["", 0, [], (), False, b"", None]),
        ("inherit_env", ["", 0, False, {}, None]),
        ("secrets", ["", 0, False, {}, None]),
        ("stdin", ["", 0, [], False, {}]),
        ("pty", ["", 0, [], False, {}, b""]),
        ("redact_tokens", ["", 0, 1, [], {}, None]),
    ],
)
def test_nothing_of_another_kind_stands_for_a_default(field: str, values: list[Any]) -> None:
    for value in values:
        refused(partial(Command, **{"argv": ["x"], field: value}), field)


@pytest.mark.parametrize("values", [None, SECRET, {SECRET}, 3])
def test_secrets_are_a_list(values: Any) -> None:
    refused(lambda: Command(argv=["x"], secrets=values), "secrets")


@pytest.mark.parametrize("stdin", ["closed", "", 3, ["a"], bytearray(b"x")])
def test_a_bad_stdin_is_refused(stdin: Any) -> None:
    refused(lambda: Command(argv=["x"], stdin=stdin), "stdin")


@pytest.mark.parametrize("stdin", [None, b"", b"input\0", "open"])
def test_every_kind_of_stdin_is_taken(stdin: Any) -> None:
    assert Command(argv=["x"], stdin=stdin).stdin == stdin


def test_the_repr_names_variables_and_shows_no_value() -> None:
    shown = repr(Command(argv=["x"], env={"API_KEY": "hunter2hunter2", "A": "b"}, timeout=3))
    assert "hunter2" not in shown
    assert "env=['A', 'API_KEY']" in shown
    assert "argv=('x',)" in shown
    assert "timeout=3" in shown


def test_neither_secrets_nor_stdin_show_in_the_repr() -> None:
    command = Command(argv=["x"], secret_env={"A": SECRET}, secrets=[SECRET], stdin=SECRET.encode())
    assert SECRET not in repr(command)


# --- StartRequest


@pytest.mark.parametrize("request_id", ["a", "scan-17", "A.b_c-9", "x" * 128])
def test_good_request_ids(request_id: str) -> None:
    assert check_request_id(request_id) == request_id


@pytest.mark.parametrize(
    "request_id", ["", "x" * 129, "a b", "a/b", "a\n", "\na", "é", "a\0", None, 17, b"a", "..\u200b"]
)
def test_bad_request_ids(request_id: object) -> None:
    refused(lambda: check_request_id(request_id), "request_id")
    refused(
        lambda: StartRequest(command=Command(argv=["x"]), request_id=request_id),  # type: ignore[arg-type]
        "request_id",
    )


def request(**fields: Any) -> StartRequest:
    return StartRequest(command=Command(argv=["x"]), request_id="r", **fields)


def test_completion_is_one_of_two_words() -> None:
    assert request(completion="tree").completion is Completion.TREE
    for value in ("all", "", None, 1):
        refused(lambda value=value: request(completion=value), "completion")  # type: ignore[misc]


def test_labels_are_copied() -> None:
    labels = {"team/a.b_c-d": "v", "empty": ""}
    asked = request(labels=labels)
    labels["later"] = "v"
    assert asked.labels == {"team/a.b_c-d": "v", "empty": ""}
    assert asked.owner == DEFAULT_OWNER


@pytest.mark.parametrize(
    ("labels", "field"),
    [
        ([("a", "b")], "labels"),
        ({f"l{n}": "" for n in range(MAX_LABELS + 1)}, "labels"),
        ({"": "v"}, "labels"),
        ({"a b": "v"}, "labels"),
        ({"a\n": "v"}, "labels"),
        ({"x" * 129: "v"}, "labels"),
        ({3: "v"}, "labels"),
        ({"a": 3}, "labels[a]"),
        ({"a": "x" * 1025}, "labels[a]"),
        ({"a": "\0"}, "labels[a]"),
        ({"a": "\ud800"}, "labels[a]"),
    ],
)
def test_bad_labels_are_refused(labels: Any, field: str) -> None:
    refused(lambda: request(labels=labels), field)
