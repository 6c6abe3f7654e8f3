"""Words of the command line become values, or a refusal that names the option."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from durable_supervisor.cli.options import parse
from durable_supervisor.model.errors import ErrorCode, SupervisorError


@pytest.mark.parametrize(
    ("word", "value"),
    [("1000", 1000), ("64M", 64 << 20), ("64m", 64 << 20), ("1G", 1 << 30), ("2KiB", 2048), ("3kb", 3072)],
)
def test_sizes(word: str, value: int) -> None:
    assert parse.size("max_output", word) == value


@pytest.mark.parametrize("word", ["", "M", "-1", "1.5M", "64X", "1e6", "0x10", "٣"])
def test_what_is_not_a_size(word: str) -> None:
    with pytest.raises(SupervisorError) as caught:
        parse.size("max_output", word)
    assert caught.value.code is ErrorCode.INVALID_REQUEST
    assert "max_output" in caught.value.message


@pytest.mark.parametrize(
    ("word", "value"),
    [("90", 90.0), ("0.5", 0.5), ("500ms", 0.5), ("10m", 600.0), ("2h", 7200.0), ("1d", 86400.0)],
)
def test_times(word: str, value: float) -> None:
    assert parse.seconds("timeout", word) == value


def test_no_time_is_no_time() -> None:
    assert parse.seconds("timeout", None) is None


@pytest.mark.parametrize("word", ["soon", "", "10 minutes", "1h30"])
def test_what_is_not_a_time(word: str) -> None:
    with pytest.raises(SupervisorError, match="timeout"):
        parse.seconds("timeout", word)


@pytest.mark.parametrize("word", ["nan", "inf", "-1", "-inf"])
def test_times_that_no_model_judges_are_finite(word: str) -> None:
    with pytest.raises(SupervisorError, match="timeout"):
        parse.positive_seconds("timeout", word)


@pytest.mark.parametrize(("word", "value"), [("0", 0), ("17", 17)])
def test_whole_numbers(word: str, value: int) -> None:
    assert parse.whole("after", word) == value


@pytest.mark.parametrize("word", ["-1", "1.0", "x", "", "1" * 19, "1\n"])
def test_what_is_not_a_whole_number(word: str) -> None:
    with pytest.raises(SupervisorError, match="after"):
        parse.whole("after", word)


def test_limits_of_a_page_are_at_least_one() -> None:
    with pytest.raises(SupervisorError, match="limit"):
        parse.whole("limit", "0", least=1)


@pytest.mark.parametrize("word", ["0", "-2", "nan", "inf", "fast"])
def test_what_is_not_a_speed(word: str) -> None:
    with pytest.raises(SupervisorError, match="speed"):
        parse.factor("speed", word)


@pytest.mark.parametrize("word", ["TERM", "SIGTERM", "term", "15"])
def test_signals(word: str) -> None:
    assert parse.signal_number(word) == signal.SIGTERM


def test_real_time_signals_have_numbers_only() -> None:
    assert parse.signal_number(str(signal.SIGRTMIN + 3)) == signal.SIGRTMIN + 3


@pytest.mark.parametrize("word", ["", "NOPE", "0", "999", "-9", "²"])
def test_what_is_not_a_signal(word: str) -> None:
    with pytest.raises(SupervisorError, match="signal"):
        parse.signal_number(word)


def test_pairs() -> None:
    assert parse.pairs("env", ["A=1", "B=", "C=x=y", "A=2"]) == {"A": "2", "B": "", "C": "x=y"}
    for word in ("A", "=1", ""):
        with pytest.raises(SupervisorError, match="env"):
            parse.pairs("env", [word])


def test_a_secret_named_alone_comes_from_our_environment() -> None:
    assert parse.secret_pairs(["T", "U=given"], {"T": "found"}) == {"T": "found", "U": "given"}
    with pytest.raises(SupervisorError, match="MISSING"):
        parse.secret_pairs(["MISSING"], {})


def test_env_file(tmp_path: Path) -> None:
    file = tmp_path / "env"
    file.write_bytes(b"# comment\n\nA=1\nexport B='two words'\nC=\"x\"\r\n D = spaced \nE=a#b\nF=\xff\n")
    assert parse.env_file(str(file)) == {
        "A": "1",
        "B": "two words",
        "C": "x",
        "D": "spaced",
        "E": "a#b",
        "F": "\udcff",
    }


def test_env_file_names_the_line_but_not_its_content(tmp_path: Path) -> None:
    file = tmp_path / "env"
    file.write_text("A=1\nhunter2hunter2\n")
    with pytest.raises(SupervisorError) as caught:
        parse.env_file(str(file))
    assert "line 2" in caught.value.message
    assert "hunter2" not in str(caught.value.to_dict())


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    for path in (str(tmp_path / "none"), str(tmp_path), "a\0b"):
        with pytest.raises(SupervisorError, match="env_file"):
            parse.env_file(path)
