"""Keyed digests name what differs; secret values are found and replaced."""

from __future__ import annotations

import hmac
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from durable_supervisor.model import digest, secrets
from durable_supervisor.model.command import SUGAR, Command, Completion, Limits, OnLimit
from durable_supervisor.model.digest import FIELDS, differing_fields, field_digest, request_digests
from durable_supervisor.model.hmac_sha256 import hmac_sha256
from durable_supervisor.model.policy import Policy
from durable_supervisor.model.request import Lifetime, StartRequest
from durable_supervisor.model.secrets import (
    REDACTED,
    SECRET_NAME_WORDS,
    is_secret_name,
    redact_text,
    secret_values,
)
from durable_supervisor.model.terminal import Terminal

KEY = bytes(range(32))
ASKED: dict[str, Any] = {
    "argv": ["rg", "TODO"],
    "env": {"A": "1"},
    "stdin": b"input",
    "inherit_env": ["LANG"],
}
RELEASED = {
    "argv": "36f34ebbd975f9da03ead6ffdfeaabba",
    "completion": "4eea32fe82aa954b78511c5cd662aae3",
    "cwd": "e4e8cf76a03ca34d52617e1b3f9ff7e7",
    "env": "085767594a60026741793abd26920c24",
    "inherit_env": "081e3f1b50dd814d4446a94c372a8235",
    "limits": "887df457ae249541c5da3467366903dd",
    "stdin": "2b32425052f8ea23641c3fdae031e15c",
}


def digests(
    *,
    key: bytes = KEY,
    cwd: str = "/repo",
    limits: Limits | None = None,
    completion: str = "leader",
    policy: Policy | None = None,
    lifetime: Lifetime = Lifetime.DETACHED,
    **command: Any,
) -> dict[str, str]:
    request = StartRequest(
        command=Command(**{**ASKED, **command}),
        request_id="r",
        limits=limits or Limits(),
        completion=completion,
        policy=policy,
        lifetime=lifetime,
    )
    return request_digests(request, cwd, key)


def test_the_same_request_has_the_same_digests() -> None:
    assert differing_fields(digests(), digests()) == []
    assert set(digests()) == set(FIELDS) - {"pty", "policy", "lifetime"}
    assert set(digests(pty=Terminal(), policy=Policy(), lifetime=Lifetime.SCOPE)) == set(FIELDS)


@pytest.mark.parametrize(
    ("change", "fields"),
    [
        ({"argv": ["rg", "TODO "]}, ["argv"]),
        ({"argv": ["rg TODO"]}, ["argv"]),
        ({"cwd": "/other"}, ["cwd"]),
        ({"env": {"A": "2"}}, ["env"]),
        ({"env": {}}, ["env"]),
        ({"secret_env": {"B": "12345678"}}, ["env"]),
        ({"inherit_env": []}, ["inherit_env"]),
        ({"stdin": b""}, ["stdin"]),
        ({"stdin": None}, ["stdin"]),
        ({"stdin": "open"}, ["stdin"]),
        ({"limits": Limits(timeout=1)}, ["limits"]),
        ({"completion": "tree"}, ["completion"]),
        ({"argv": ["x"], "stdin": None, "completion": "tree"}, ["argv", "stdin", "completion"]),
        ({"pty": Terminal()}, ["pty"]),
    ],
)
def test_a_conflict_names_every_field_that_differs(change: dict[str, Any], fields: list[str]) -> None:
    assert differing_fields(digests(), digests(**change)) == fields


def test_confinement_and_lifetime_are_part_of_a_request() -> None:
    for change, field in (
        ({"limits": Limits(max_processes=1)}, "limits"),
        ({"policy": Policy()}, "policy"),
        ({"lifetime": Lifetime.SCOPE}, "lifetime"),
    ):
        assert differing_fields(digests(), digests(**change)) == [field]
    assert differing_fields(digests(policy=Policy()), digests(policy=Policy(network="none"))) == ["policy"]


def test_digests_of_an_earlier_release_still_compare() -> None:
    """Journals hold these: what they were made from must go on giving the same."""
    assert digests() == RELEASED


@pytest.mark.parametrize(
    ("change", "field", "released"),
    [
        ({"argv": ["\udcff", ""]}, "argv", "744df48d4fbd25910e891cbaa11843a6"),
        ({"env": {}}, "env", "187a56689779719ddacae7a365cb6088"),
        ({"secret_env": {"PW": "long-enough"}}, "env", "8da2319ed086e04470b2670761616704"),
        ({"inherit_env": []}, "inherit_env", "59fc7de74b9aa4b263fa904f24d42e67"),
        ({"stdin": None}, "stdin", "c68547c5d98b822c96a5199edab96770"),
        ({"stdin": "open"}, "stdin", "1ae4f1ea5591df81a3764843192c3473"),
        ({"stdin": b""}, "stdin", "6f8593e11e3714171a696db25cf8e6d7"),
        ({"limits": Limits(grace=10)}, "limits", RELEASED["limits"]),
        (
            {"limits": Limits(timeout=5, on_limit=OnLimit.TERMINATE)},
            "limits",
            "14a8893028877b300b66eed303aa8bea",
        ),
        (
            {"limits": Limits(max_memory_bytes=1 << 30, max_cpus=0.5)},
            "limits",
            "d867e148d65c40d98b94c2033b29e69c",
        ),
        ({"completion": "leader"}, "completion", RELEASED["completion"]),
        ({"completion": "tree"}, "completion", "de6631d2c8542ed276d68df117e6a6c2"),
        ({"pty": Terminal()}, "pty", "4a8ede8ca0caafa7000cb570d6e257bd"),
        ({"policy": Policy(network="none")}, "policy", "e296d883ea20accec01b26ec2892d552"),
        ({"lifetime": Lifetime.SCOPE}, "lifetime", "d357e8ee2dcf789950adcbb0de5b99d3"),
    ],
)
def test_so_do_those_of_each_field(change: dict[str, Any], field: str, released: str) -> None:
    assert digests(**change)[field] == released


def test_what_is_asked_for_as_it_is_by_itself_is_the_same_request() -> None:
    left_out = StartRequest(command=Command(argv=["x"]), request_id="r")
    command = Command(
        argv=["x"],
        cwd=None,
        env={},
        secret_env={},
        inherit_env=[],
        stdin=None,
        secrets=[],
        pty=None,
        redact_tokens=True,
        **dict.fromkeys(SUGAR),
    )
    given = StartRequest(
        command=command,
        request_id="r",
        limits=Limits(**{name: getattr(Limits, name) for name in Limits.FIELDS}),
        completion=Completion("leader"),
        labels={},
        owner="local",
        policy=None,
        lifetime=Lifetime("detached"),
    )
    assert command == left_out.command
    assert request_digests(given, "/", KEY) == request_digests(left_out, "/", KEY)
    for one in (given, left_out):
        assert (one.labels, one.owner, one.confines) == ({}, "local", False)


@pytest.mark.parametrize("change", [{"columns": 81}, {"rows": 25}, {"term": "dumb"}])
def test_another_terminal_is_another_request(change: dict[str, Any]) -> None:
    first, other = digests(pty=Terminal()), digests(pty=Terminal(**change))
    assert differing_fields(first, other) == ["pty"]


def test_a_whole_number_of_seconds_is_the_same_request_as_its_fraction() -> None:
    whole = Limits(timeout=5, idle_timeout=2, grace=1, max_cpu_seconds=3, max_cpus=1)
    assert digests(limits=whole) == digests(
        limits=Limits(timeout=5.0, idle_timeout=2.0, grace=1.0, max_cpu_seconds=3.0, max_cpus=1.0)
    )


def test_minus_zero_is_zero_whichever_comes_first() -> None:
    for first, then in ((0.0, -0.0), (-0.0, 0.0)):
        digest._limits_digest.cache_clear()
        found = {digests(limits=Limits(grace=grace))["limits"] for grace in (first, 0, then)}
        assert found == {field_digest(KEY, "limits", digest._encode(Limits(grace=0).to_dict()))}
        assert b"-0.0" not in digest._encode(Limits(grace=then).to_dict())


def test_the_order_of_variables_is_no_difference() -> None:
    first = digests(env={"A": "1", "B": "2"}, inherit_env=["X", "Y"])
    assert differing_fields(first, digests(env={"B": "2", "A": "1"}, inherit_env=["Y", "X", "Y"])) == []


def test_whether_a_variable_is_called_secret_is_no_difference() -> None:
    assert digests(env={"A": "12345678"})["env"] == digests(env={}, secret_env={"A": "12345678"})["env"]


def test_no_stdin_no_bytes_and_the_words_for_them_differ() -> None:
    kinds = [None, b"", b"null", "open", b"open", b"bytes:"]
    assert len({digests(stdin=kind)["stdin"] for kind in kinds}) == len(kinds)


def test_undecodable_arguments_are_told_apart() -> None:
    assert digests(argv=["cat", b"\xff"])["argv"] != digests(argv=["cat", b"\xfe"])["argv"]


def test_digests_depend_on_the_key_and_on_the_field() -> None:
    whole: dict[str, Any] = {"pty": Terminal(), "policy": Policy(), "lifetime": Lifetime.SCOPE}
    assert differing_fields(digests(**whole), digests(**whole, key=b"k" * 32)) == list(FIELDS)
    assert field_digest(KEY, "argv", b"x") != field_digest(KEY, "cwd", b"x")
    assert all(len(digest) == 32 and int(digest, 16) >= 0 for digest in digests().values())


def test_a_digest_shows_nothing_of_its_value() -> None:
    assert "12345678" not in repr(digests(secret_env={"B": "12345678"}))


# --- secrets


@pytest.mark.parametrize("word", SECRET_NAME_WORDS)
def test_names_that_mark_a_secret(word: str) -> None:
    for name in (word, word.lower(), f"MY_{word}", f"{word}_FILE", f"x{word.title()}y"):
        assert is_secret_name(name)


@pytest.mark.parametrize("name", ["PATH", "HOME", "LANG", "KEY", "KEYBOARD", "PASS", "PWD", "USER", "AUTHOR"])
def test_names_that_do_not(name: str) -> None:
    assert not is_secret_name(name)


def test_values_are_secret_by_word_by_name_or_by_being_registered() -> None:
    found = secret_values(
        ["registered-value"],
        {"ANY": "12345678"},
        {"API_TOKEN": "token-value", "SHORT_TOKEN": "1234567", "PATH": "/usr/bin:/bin", "ANY": "12345678"},
    )
    assert found == ["registered-value", "token-value", "12345678"]


def test_a_longer_secret_wins_over_its_part() -> None:
    found = secret_values(["12345678", "123456789012"], {}, {})
    assert redact_text("a 123456789012 b 12345678 c", found) == f"a {REDACTED} b {REDACTED} c"


@given(
    st.lists(st.text(alphabet="abcd", min_size=8, max_size=12), max_size=4),
    st.lists(st.text(alphabet="abcd ", max_size=8), max_size=5),
)
def test_no_secret_survives_in_a_text(secrets: list[str], parts: list[str]) -> None:
    text = "".join(part + secret for part, secret in zip(parts, secrets * 5, strict=False))
    redacted = redact_text(text, secret_values(secrets, {}, {}))
    assert not any(secret in redacted for secret in secrets)


@pytest.mark.parametrize("key", [b"", b"k", KEY, b"x" * 64, b"x" * 65, bytes(range(256))], ids=len)
@pytest.mark.parametrize("size", [0, 1, 63, 64, 65, 1000, 256 * 1024, 256 * 1024 + 1])
def test_the_digest_is_that_of_the_standard_library(key: bytes, size: int) -> None:
    text = bytes(range(251)) * (size // 251 + 1)
    assert hmac_sha256(key, text[:size]) == hmac.digest(key, text[:size], "sha256")


def test_what_is_remembered_of_requests_is_small_and_no_secret() -> None:
    """Whoever serves many clients remembers none of their values, and no name that takes much memory."""
    remembered = (digest._limits_digest, secrets._known_name)

    def asked(request: StartRequest) -> list[int]:
        for name in request.command.env:
            is_secret_name(name)
        request_digests(request, "/", KEY)
        return [known.cache_info().currsize for known in remembered]

    for known in remembered:
        known.cache_clear()
    plain = asked(StartRequest(command=Command(argv=["true"], inherit_env=["A"]), request_id="a"))
    long = "N" * 2000
    loaded = Command(
        argv=["true", "argument"],
        env={long: "value of a variable"},
        secret_env={"TOKEN": "hunter2hunter2"},
        inherit_env=[long],
        stdin=b"given",
    )
    assert asked(StartRequest(command=loaded, request_id="b")) == plain
