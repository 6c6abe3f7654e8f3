"""What a well-formed command line means, with and without typer: the same, option by option."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from durable_supervisor.cli import by_typer, verbs
from durable_supervisor.cli.options import words
from durable_supervisor.cli.options.declared import Argument, Parameter, parameters
from durable_supervisor.model.errors import SupervisorError
from tests.cli.helpers import Cli


def plain(verb: str, line: list[str]) -> dict[str, Any] | None:
    """By our own parser; None where it leaves the line to typer."""
    found = words.parse(verbs.load(verb), line, interspersed=verbs.interspersed(verb))
    return None if found is None or found[1] else found[0]


def alike(values: dict[str, Any]) -> dict[str, Any]:
    """An option that repeats and was not given may be None or empty: verbs take both."""
    return {name: None if value in ((), []) else value for name, value in values.items()}


def by_typer_too(verb: str, line: list[str]) -> dict[str, Any]:
    values = by_typer.judge(verb, line)
    return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}


def needed(taken: list[Parameter]) -> list[str]:
    """The words without which the verb is not plain."""
    line = []
    for one in taken:
        if one.required:
            line += ["word"] if isinstance(one.declared, Argument) else [one.declared.flags[0], "value"]
    return line


def lines(verb: str) -> Iterator[list[str]]:
    """Each option in each way in which it can be written, before and behind the arguments."""
    taken = parameters(verbs.load(verb))
    rest = needed(taken)
    yield rest
    yield ["--", *rest] if all(isinstance(one.declared, Argument) for one in taken if one.required) else rest
    for one in taken:
        if isinstance(one.declared, Argument):
            yield [*rest, "-"]
            yield [*rest, "--", "-x"] if one.many else rest
            continue
        for flag in one.declared.flags:
            if one.flag:
                ways = [[flag], [flag, flag]]
            elif flag.startswith("--"):
                ways = [
                    [flag, "a b"],
                    [f"{flag}=a=b"],
                    [f"{flag}="],
                    [flag, "--json"],
                    [flag, "1", flag, "2"],
                ]
            else:
                ways = [[flag, "a"], [f"{flag}a=b"], [f"{flag}=a"], [flag, ""], [flag, "-"]]
            for way in ways:
                yield [*way, *rest]
                yield [*rest, *way]


@pytest.mark.parametrize("verb", verbs.VERBS)
def test_typer_reads_the_same_from_it(verb: str) -> None:
    read = 0
    for line in lines(verb):
        ours = plain(verb, line)
        if ours is not None:
            assert alike(ours) == alike(by_typer_too(verb, line)), line
            read += 1
    assert read > 4, "most of the lines are plain"


@pytest.mark.parametrize(
    ("verb", "line"),
    [
        ("start", []),
        ("start", ["--"]),
        ("start", ["--nothing-of-ours", "--", "true"]),
        ("start", ["--time", "5", "--", "true"]),
        ("start", ["--request-id"]),
        ("start", ["--json=yes", "--", "true"]),
        ("start", ["-x", "true"]),
        ("inspect", []),
        ("inspect", ["one", "two"]),
        ("export", ["run"]),
        ("list", ["--limit"]),
    ],
)
def test_a_mistake_is_left_to_typer_which_finds_one(verb: str, line: list[str]) -> None:
    assert plain(verb, line) is None
    with pytest.raises(SupervisorError):
        by_typer.judge(verb, line)


def test_the_words_of_a_program_are_its_own() -> None:
    for line in (["--json", "ls", "--json", "--", "-l"], ["--json", "--", "ls", "--json", "--", "-l"]):
        values = plain("start", line)
        assert values is not None
        assert values["json"] is True
        assert values["argv"] == ["ls", "--json", "--", "-l"]


def test_names_that_posix_would_have_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environ, "POSIXLY_CORRECT", "1")
    values = plain("inspect", ["run", "--json"])
    assert values is not None
    assert (values["run"], values["json"]) == ("run", True)


def test_the_shared_options_may_stand_before_the_verb(cli: Cli) -> None:
    for line in (
        ["--json", "list"],
        ["list", "--json"],
        ["--state-dir", str(cli.state_dir), "--json", "list"],
    ):
        assert cli.ok(*line).document["runs"] == []


@pytest.mark.parametrize(
    ("line", "option"),
    [
        (["list", "--limit", "x"], "--limit"),
        (["list", "--label", "x"], "--label"),
        (["list", "--state", "x"], "--state"),
        (["wait", "run", "--timeout", "x"], "--timeout"),
        (["stop", "run", "--grace", "x"], "--grace"),
        (["gc", "--older-than", "x"], "--older-than"),
        (["gc", "--max-size", "x"], "--max-size"),
        (["start", "--size", "80x24", "--", "true"], "--size"),
        (["serve", "--socket-mode", "x"], "--socket-mode"),
        (["serve", "--max-queued-runs", "x"], "--max-queued-runs"),
        (["serve", "--log-level", "x"], "--log-level"),
    ],
)
def test_a_refusal_names_the_option_as_it_was_typed(cli: Cli, line: list[str], option: str) -> None:
    assert cli(*line).stderr.startswith(f"error: INVALID_REQUEST: {option}: ")


def test_a_refusal_of_which_nothing_more_can_be_said_points_to_the_help(cli: Cli) -> None:
    """Not to a request that could be sent again: that is for who sends one by program."""
    assert cli("list", "--limit", "x").stderr.endswith("a whole number of at least 1 (see --help)\n")
    assert "send the request again" in cli("list", "--limit", "x", "--json").error["hint"]


def test_an_option_without_its_value_is_explained_by_its_verb(cli: Cli) -> None:
    assert cli("list", "--limit").stderr.endswith("list --help')\n")
