"""Many secrets at once: the same as one after the other, whatever is rare in the output."""

from __future__ import annotations

from hypothesis import example, given, settings
from hypothesis import strategies as st

from durable_supervisor.model.needles import Anchor, Needles, plan
from durable_supervisor.model.secrets import secret_spans

# Few letters, so that secrets overlap, contain and repeat each other all the time.
letters = st.sampled_from(b"abc")
secrets = st.lists(st.lists(letters, min_size=1, max_size=9).map(bytes), max_size=5)
# Around what is searched: where a and b are rare, seldom, as frequent as can be, or the rare ones.
surroundings = st.sampled_from((b"z" * 4096, b"zzzzzzzzza" * 500, b"ab" * 4096, b"cab" + b"c" * 5000))
pieces = st.lists(st.lists(letters, max_size=40).map(bytes), max_size=3)


@settings(max_examples=500)
@given(secrets, surroundings, pieces, st.booleans())
@example([b"abca"], b"z" * 4096, [b"abcabca"], True)  # it overlaps itself
@example([b"aaaa", b"aaaab"], b"cab" + b"c" * 5000, [b"a" * 40], False)  # one within the other
def test_finds_what_one_search_for_each_would(
    values: list[bytes], around: bytes, inside: list[bytes], first: bool
) -> None:
    needles = Needles(values)
    for piece in inside:
        for data in (piece + around if first else around + piece, piece):
            assert needles.spans(data) == secret_spans(data, values)


@given(secrets, surroundings)
def test_a_plan_leaves_no_secret_out(values: list[bytes], sample: bytes) -> None:
    anchors, one_by_one = plan(values, sample)
    assert sorted([*one_by_one, *(one for anchor in anchors for one in anchor.secrets)]) == sorted(
        set(values)
    )


def test_few_bytes_serve_all_secrets_where_they_are_rare() -> None:
    values = [b"bench-secret-%02d-0123456789" % number for number in range(20)]
    anchors, one_by_one = plan(values, b"lines of small letters\n" * 200)
    assert (len(anchors), one_by_one) == (1, [])
    frequent = bytes(set(b"".join(values)))
    assert plan(values, frequent * 200) == ([], values)


def test_output_that_changes_is_searched_all_the_same() -> None:
    values = [b"secret-one", b"another-one"]
    needles = Needles(values)
    for around in (b"z", b"-", b"secret-on", b"e", b"z"):
        data = around * 40_000 + b"secret-one-other" + around * 40_000 + b"another-one"
        for _ in range(20):  # beyond the point at which it looks for a better plan
            assert needles.spans(data) == secret_spans(data, values)


def test_near_misses_everywhere_end_an_anchor() -> None:
    """Five hundred secrets that begin alike: each stop would compare all of them."""
    values = [b"secret-%03d" % number for number in range(500)]
    data = b"secr" * 16_384
    assert not Anchor(ord("s"), values).search(data, [])
    needles = Needles(values)
    assert needles.spans(b"z" * 4096) == []
    assert needles.spans(data) == []
    assert needles.spans(data + values[7]) == [(len(data), len(data) + len(values[7]))]


def test_a_long_secret_is_known_by_its_head_alone() -> None:
    """To plan with all of 512 secrets of 100 KB would hold up the program for a second."""
    sample = b"lines of small letters\n" * 200
    rare = bytes(range(128, 256)) * 800
    early = [b"key-%03d-" % number + rare for number in range(512)]
    anchors, one_by_one = plan(early, sample)
    assert (len(anchors), one_by_one) == (1, [])
    late = [b"e" * 64 + b"%03d" % number + rare for number in range(3)]
    assert plan(late, sample) == ([], late)
    assert Needles(early).spans(sample + early[9] + b"lines") == [(4600, 4600 + len(early[9]))]
    assert Needles(late).spans(sample + late[2]) == [(4600, 4600 + len(late[2]))]
