"""A secret is found in every form, across the borders of events, and told by its number."""

from __future__ import annotations

import base64
import json
from itertools import pairwise
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from durable_supervisor.model.audit import MOST_PLACES, checked_secrets
from durable_supervisor.model.disguises import disguises
from durable_supervisor.model.errors import ErrorCode, SupervisorError
from durable_supervisor.model.events import Event, Kind
from durable_supervisor.model.sieve import Sieve

SECRET = b"correct/horse+battery staple"
secrets = st.binary(min_size=8, max_size=40)


def output(seq: int, data: bytes, offset: int, stream: str = "stdout") -> Event:
    return Event(seq, 0, 0, Kind.OUTPUT, {"stream": stream, "offset": offset}, data)


def outputs(pieces: list[bytes], stream: str = "stdout") -> list[Event]:
    found, offset = [], 0
    for seq, piece in enumerate(pieces, start=1):
        found.append(output(seq, piece, offset, stream))
        offset += len(piece)
    return found


@settings(max_examples=300)
@given(secrets, st.binary(max_size=7), st.binary(max_size=7))
def test_base64_of_a_text_with_a_secret_holds_one_of_its_forms(
    secret: bytes, before: bytes, after: bytes
) -> None:
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        encoded = encode(before + secret + after)
        assert any(needle in encoded for needle, form in disguises(secret).items() if form == "base64")


@settings(max_examples=300)
@given(secrets)
def test_other_encodings(secret: bytes) -> None:
    needles = disguises(secret)
    text = secret.decode("utf-8", "surrogateescape")
    quoted = quote(secret, safe="")
    for encoded in (secret.hex(), secret.hex().upper(), quoted, quote(secret), quote_plus(secret)):
        assert encoded.encode() in needles
    assert quoted.lower().encode() in {needle.lower() for needle in needles}
    assert json.dumps(text)[1:-1].encode() in needles
    assert needles[secret] == "plain"


@settings(max_examples=300)
@given(st.lists(st.integers(0, 90), max_size=10), st.lists(st.integers(0, 12), max_size=4))
def test_across_the_borders_of_events_and_pages(cuts: list[int], pages: list[int]) -> None:
    text = b"first " + SECRET + b" and " + SECRET + b" last"
    edges = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    events = outputs([text[start:end] for start, end in pairwise(edges)])
    sieve = Sieve([b"not there", SECRET])
    borders = [0, *sorted(min(page, len(events)) for page in pages), len(events)]
    for start, end in pairwise(borders):
        sieve.page(events[start:end])
    report = sieve.report("run")
    assert report.found == 2
    starts = [text.index(SECRET), text.rindex(SECRET)]
    expected = [max(seq for seq, edge in enumerate(edges[:-1], start=1) if edge <= at) for at in starts]
    assert [place.seq for place in report.places for _ in range(place.count)] == expected
    assert {(place.secret, place.form, place.where, place.field) for place in report.places} == {
        (2, "plain", "output", "stdout")
    }


def test_streams_are_apart_and_gaps_join_nothing() -> None:
    half = len(SECRET) // 2
    sieve = Sieve([SECRET])
    sieve.page([output(1, SECRET[:half], 0), output(2, SECRET[half:], half, "stderr")])
    sieve.page([output(3, SECRET[half:], 1000)])
    assert sieve.report("run").clean
    sieve.page([output(4, b"x" + SECRET[:half], 1000 + len(SECRET) - half), output(5, b"", 0, "stderr")])
    sieve.page([output(6, SECRET[half:], 1001 + len(SECRET))])
    assert [place.seq for place in sieve.report("run").places] == [4]


def test_names_and_texts_of_documents() -> None:
    text = SECRET.decode()
    sieve = Sieve([SECRET])
    sieve.document("event", {"argv": ["a", f"x{text}"], text: {"more": [{"deep": text}]}, "n": 1}, 7)
    found = [(place.field, place.seq) for place in sieve.report("run").places]
    assert found == [("argv[1]", 7), ("[redacted]", 7), ("[redacted].more[0].deep", 7)]
    assert text not in json.dumps(sieve.report("run").to_dict())


def test_raw_files_tell_only_what_was_not_found_before() -> None:
    sieve = Sieve([SECRET, b"another secret"])
    sieve.page(outputs([SECRET]))
    sieve.raw("file", [b"xx" + SECRET[:5], SECRET[5:], b"another sec", b"ret", b" another secret"])
    places = [(place.where, place.secret, place.count) for place in sieve.report("run").places]
    assert places == [("output", 1, 1), ("file", 2, 2)]


def test_the_list_of_places_has_a_bound_and_the_count_none() -> None:
    sieve = Sieve([SECRET])
    for seq in range(1, MOST_PLACES + 11):
        sieve.document("event", [SECRET.decode()], seq)
    report = sieve.report("run")
    assert (len(report.places), report.found) == (MOST_PLACES, MOST_PLACES + 10)


@pytest.mark.parametrize("given_secrets", [[], "a text alone", b"a text alone", ["short"], [8], [b"1234567"]])
def test_what_is_no_secret_is_refused(given_secrets: list[bytes]) -> None:
    with pytest.raises(SupervisorError) as refused:
        checked_secrets(given_secrets)
    assert refused.value.code is ErrorCode.INVALID_REQUEST
    assert "short" not in str(refused.value.to_dict()).replace("so short", "")
