"""A word that names no run, and no file: what was looked for, where, and what next."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.helpers import Cli, assert_one_error_line


@pytest.mark.parametrize("verb", ["inspect", "events", "logs", "replay", "wait", "attach", "stop"])
def test_a_name_that_is_neither(cli: Cli, verb: str) -> None:
    refused = cli(verb, "nope.zip")
    assert refused.code == 3
    assert_one_error_line(refused, "UNKNOWN_RUN")
    assert f"no run 'nope.zip' in {cli.state_dir}, and no such file here" in refused.stderr
    assert "a run's id, the beginning of one, or a bundle" in refused.stderr


@pytest.mark.parametrize("words", [["report", "nope.zip", "-o", "-"], ["export", "nope.zip", "-o", "-"]])
def test_of_verbs_that_write_a_file(cli: Cli, words: list[str]) -> None:
    assert f"no run 'nope.zip' in {cli.state_dir}, and no such file" in cli(*words).stderr


def test_a_beginning(cli: Cli) -> None:
    refused = cli("inspect", "x")
    assert_one_error_line(refused, "UNKNOWN_RUN")
    assert f"no run whose id begins with 'x' in {cli.state_dir} (" in refused.stderr


@pytest.mark.parametrize("verb", ["events", "logs", "inspect", "replay"])
def test_a_path(cli: Cli, verb: str) -> None:
    refused = cli(verb, "./nope.zip")
    assert refused.code == 2
    assert_one_error_line(refused, "INVALID_REQUEST")
    assert "there is no file './nope.zip' (a RUN with a / in it is the path of a bundle" in refused.stderr


def test_a_path_is_shown_whole_and_as_it_was_typed(cli: Cli, tmp_path: Path) -> None:
    long = str(tmp_path / "café" / ("x" * 200) / "run.zip")
    for verb in ("inspect", "list", "verify"):
        assert f"there is no file '{long}' (" in cli(verb, long).stderr
    assert r"no run 'a\x1b[2J\u202e.zip' in " in cli("inspect", "a\x1b[2J\u202e.zip").stderr


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["list", "nope.zip"], "there is no file 'nope.zip' ("),
        (["verify", "nope.zip"], "there is no file 'nope.zip' ("),
        (["import", "nope.zip"], "nope.zip: bundle: cannot be opened: No such file"),
    ],
)
def test_a_verb_that_takes_a_file_names_it(cli: Cli, words: list[str], told: str) -> None:
    refused = cli(*words)
    assert refused.code == 2
    assert_one_error_line(refused, "INVALID_REQUEST")
    assert told in refused.stderr


def test_a_control_of_a_file(cli: Cli) -> None:
    assert (
        "'./run.zip' is no run's id (a bundle can be read, nothing else: " in cli("stop", "./run.zip").stderr
    )


def test_nothing_at_all(cli: Cli) -> None:
    assert "RUN is empty (a variable that was never set?" in cli("inspect", "").stderr


def test_a_file_that_is_called_like_the_beginning_of_an_id(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("nightly").write_text("no bundle")
    assert "the file of that name is ./nightly" in cli("inspect", "nightly").stderr


@pytest.mark.parametrize(
    "words", [["wait", "nightly"], ["export", "nightly", "-o", "-"], ["resolve", "nightly", "--accept"]]
)
def test_a_request_id_is_told_its_run(cli: Cli, words: list[str]) -> None:
    run_id = cli.start("--request-id", "nightly", "--", "true")
    assert f"that is a request id; its run is {run_id}" in cli(*words).stderr


def test_also_of_the_longest(cli: Cli) -> None:
    request_id = "nightly-" + "n" * 120
    run_id = cli.start("--request-id", request_id, "--", "true")
    assert f"that is a request id; its run is {run_id}" in cli("inspect", request_id).stderr
