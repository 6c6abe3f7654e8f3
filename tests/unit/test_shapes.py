"""What looks like a credential is found, in any pieces; what is ordinary output stays as it is."""

from __future__ import annotations

import base64
import hashlib
import random
import string
import uuid
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from durable_supervisor.model import shapes
from durable_supervisor.model.tokens import REST, redact_tokens
from durable_supervisor.worker.redact import Redactor, TokenRedactor, Utf8Boundary

_random = random.Random(20)


def letters(count: int, alphabet: str = string.ascii_letters + string.digits) -> str:
    return "".join(_random.choice(alphabet) for _ in range(count))


def segment(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).rstrip(b"=").decode()


HEX = "0123456789abcdef"
BASE32 = string.ascii_uppercase + "234567"
HEADER, CLAIMS = segment('{"alg":"HS256","typ":"JWT"}'), segment('{"sub":"1234567890","name":"x"}')
JWT = f"{HEADER}.{CLAIMS}.{letters(43)}"
OLD_HEADER = f"Proc-Type: 4,ENCRYPTED\r\nDEK-Info: AES-256-CBC,{letters(32, HEX)}\r\n"
PEM = "\n".join(letters(64, string.ascii_letters + string.digits + "+/") for _ in range(12))

# What is shown before a body, and the body.
TOKENS = [
    ("sk-", letters(48)),
    ("sk-", letters(32, HEX)),
    ("sk-", f"proj-{letters(60)}_{letters(60)}-{letters(20)}"),
    ("sk-", f"ant-api03-{letters(93)}AA"),
    *((f"gh{kind}_", letters(36)) for kind in "pousr"),
    ("github_pat_", f"{letters(22)}_{letters(59)}"),
    ("AKIA", letters(16, BASE32)),
    ("ASIA", letters(16, BASE32)),
    *((f"xox{kind}-", f"{letters(12, string.digits)}-{letters(24)}") for kind in "baprs"),
    ("glpat-", letters(20)),
    ("AIza", letters(35)),
    ("npm_", letters(36)),
    ("eyJ", JWT.removeprefix("eyJ")),
    ("Authorization: Bearer ", letters(24)),
    ("authorization: bearer ", letters(12)),
    ('"Authorization": "Basic ', base64.b64encode(b"user:Pa55word").decode()),
    ("'Authorization': 'Token ", letters(40, HEX)),
    ("Bearer ", f"{letters(20)}.{letters(20)}/{letters(3)}=="),
    ("--header=bearer ", letters(30)),
    ("postgres://app:", "hunter2"),
    ("https://user:", "p@ss:w@rd"),
    ("redis://:", "s3cr3t"),
    ("-----BEGIN PRIVATE KEY-----", f"\n{PEM}\n"),
    ("-----BEGIN RSA PRIVATE KEY-----", f"\r\n{OLD_HEADER}\r\n{PEM}\r\n"),
    ('"-----BEGIN ENCRYPTED PRIVATE KEY-----', "\\n" + PEM.replace("\n", "\\n") + "\\n"),
    ("-----BEGIN PGP PRIVATE KEY BLOCK-----", f"\n\n{PEM}\n=aBcD\n"),
]  # fmt: skip
BEFORE = ["", " ", "token=", '"', "x\n", "key: '", "\x1b[32m", "\x1b[1;31m", "\\n", "a%3D", "é", "/"]
AFTER = {"url": "@host/db", "pem": "-----END", "other": " and"}

ORDINARY = [
    "task-0123456789abcdefABCDEF012345 risk-ABCDEFGHIJ0123456789 desk-0123456789ABCDEFGHIJ",
    "disk-by-id-0123456789abcdef0123456789",
    "sk-folding-cube-spinner-animation sk-short1 the sk- prefix",
    "sk-circle-fade-dot-with-a-very-long-class-name",
    "ghp_ ghp_tooshort1 github_pat_for_release_automation_jobs gho_" + "x" * 36,
    "AKIA AKIAB ASIAPACIFICREGIONANDMORE2 ASIA_PACIFIC_REGION_NAME_2 AKIA" + "A" * 40,
    "npm_config_registry=https://registry.npmjs.org/ npm_package_dependencies_of_0123456789_ABC",
    "xoxb- xox xoxb-team-name glpat- glpat-your-token-goes-here",
    "eyJ eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9 eyJ.a.b",
    "Bearer token, bearer authentication-required-by-the-server, a bearer of news",
    "Authorization: Bearer <token>\nAuthorization: Basic realm\nAuthorization: Bearer ${TOKEN}",
    "https://host:8080/a@b http://host:80?x=a@b ssh://git@github.com:owner/name.git",
    "https://host/path:with@at mailto:someone@example.org user:password@host",
    "postgres://{user}:{password}@{host}/db http://%s:%s@%s/ redis://${USER}:${PASS}@h",
    "-----BEGIN CERTIFICATE-----\n" + PEM + "\n-----END CERTIFICATE-----",
    "-----BEGIN PUBLIC KEY-----\n" + PEM + "\n-----END PUBLIC KEY-----",
    'if line == "-----BEGIN PRIVATE KEY-----": raise ValueError("a PRIVATE KEY----- here")',
    "-----BEGIN PRIVATE KEY-----\n-----END PRIVATE KEY-----\n" + PEM,
    "\n".join(str(uuid.UUID(int=_random.getrandbits(128))) for _ in range(50)),
    "\n".join(hashlib.sha256(bytes([number])).hexdigest() for number in range(50)),
    "commit 99a2b1dd2c6e8eea8420100294a597f5868e34a5\nAuthor: A B <a.b@example.org>\nDate:   Mon Nov 30",
    base64.encodebytes(bytes(range(256)) * 40).decode(),
    base64.urlsafe_b64encode(_random.randbytes(30_000)).decode(),
    'https://[::1]:8080/@x "http://a:1@"',
]  # fmt: skip


def shown(prefix: str) -> str:
    return f"{prefix}[redacted]"


def whole(data: bytes) -> bytes:
    return redact_tokens(data.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")


def split(data: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted(min(place, len(data)) for place in places), len(data)]
    return [data[start:end] for start, end in pairwise(edges)]


def stream(pieces: list[bytes]) -> bytes:
    tokens = TokenRedactor()
    return b"".join([tokens.feed(piece) for piece in pieces]) + tokens.finish()


def after(prefix: str) -> str:
    kind = "url" if "://" in prefix else "pem" if "BEGIN" in prefix else "other"
    return AFTER[kind]


@pytest.mark.parametrize("before", BEFORE)
@pytest.mark.parametrize(("prefix", "body"), TOKENS)
def test_a_body_is_replaced_and_its_prefix_stays(prefix: str, body: str, before: str) -> None:
    assert redact_tokens(f"{before}{prefix}{body}{after(prefix)}") == before + shown(prefix) + after(prefix)


@pytest.mark.parametrize(("prefix", "body"), TOKENS)
def test_at_every_split_point_it_is_the_same(prefix: str, body: str) -> None:
    text = f"first {prefix}{body}{after(prefix)} last\n".encode()
    expected = f"first {shown(prefix)}{after(prefix)} last\n".encode()
    assert all(stream(split(text, [at])) == expected for at in range(len(text) + 1))
    assert stream(split(text, list(range(len(text))))) == expected


@pytest.mark.parametrize(("prefix", "body"), TOKENS)
def test_what_is_typed_before_a_body_is_shown_at_once(prefix: str, body: str) -> None:
    tokens = TokenRedactor()
    typed = [tokens.feed(letter.encode()) for letter in f"$ {prefix}"]
    assert b"".join(typed).decode() == f"$ {prefix}"
    assert b"".join(tokens.feed(letter.encode()) for letter in body)[:20] in (b"", b"[redacted]")


@pytest.mark.parametrize("text", ORDINARY)
def test_ordinary_output_is_unchanged(text: str) -> None:
    data = text.encode()
    assert redact_tokens(text) == text
    assert stream([data]) == data
    assert stream(split(data, list(range(0, len(data), 7)))) == data


def test_all_bytes_are_exact() -> None:
    data = bytes(range(256)) * 10
    assert stream([data]) == data
    assert stream(split(data, list(range(len(data))))) == data


# Pieces of shapes in any order, so that they nest, touch, begin and end anywhere.
_PIECES = [
    "sk-", "ghp_", "AKIA", "eyJ", "xoxb-", "AIza", "npm_", "glpat-", "github_pat_", "Bearer ", "bearer ",
    "Authorization: Basic ", "://", "u:", "p4s", "@", ".", "-", "-----", "BEGIN ", "RSA ",
    "-----BEGIN PRIVATE KEY-----", "PRIVATE KEY", " BLOCK", "-----END", "\n", " ", "\x1b[3", "2m", "\\n",
    "%3D", "é", "=", "A1B2C3D4", "ABCDEFGH12345678", "a" * 15, "Q9" * 9, "Zz0" * 12, "x1Y" * 30,
]  # fmt: skip
pieces = st.lists(st.sampled_from([piece.encode() for piece in _PIECES]) | st.binary(max_size=3), max_size=14)
cuts = st.lists(st.integers(0, 400), max_size=12)


@settings(max_examples=1500, deadline=None)
@given(pieces, cuts)
def test_any_split_gives_what_the_whole_would(texts: list[bytes], places: list[int]) -> None:
    data = b"".join(texts)
    assert stream(split(data, places)) == whole(data)


@settings(max_examples=300, deadline=None)
@given(pieces, cuts)
def test_filters_in_a_row_hide_what_each_of_them_hides(texts: list[bytes], places: list[int]) -> None:
    """Registered values first: one that begins inside a token may end after it."""
    data = b"".join(texts)
    redactor, tokens, boundary = Redactor([b"Q9Q9Q9Q9", b"AKIAABCD"]), TokenRedactor(), Utf8Boundary()
    out = [boundary.feed(tokens.feed(redactor.feed(piece))) for piece in split(data, places)]
    out.append(boundary.feed(tokens.feed(redactor.finish()) + tokens.finish()) + boundary.finish())
    assert not any(secret in b"".join(out) for secret in (b"Q9Q9Q9Q9", b"AKIAABCD"))
    plain = Redactor([b"Q9Q9Q9Q9", b"AKIAABCD"])
    assert b"".join(out) == whole(plain.feed(data) + plain.finish())


def test_no_more_is_held_than_decides() -> None:
    tokens = TokenRedactor()
    assert tokens.feed(b"eyJ" + b"x" * 4000) == b"eyJ"
    assert tokens.feed(b"x" * 200) == b"x" * 4200  # too long for a header
    assert tokens.feed(b"\nsk-Abc") == b"\nsk-"
    assert tokens.feed(b"1 ") == b"Abc1 "


def test_a_body_without_an_end_has_a_bound() -> None:
    key = b"-----BEGIN PRIVATE KEY-----\n" + (b"Ab1" * 30 + b"\n") * 5000
    out = stream(split(key, list(range(0, len(key), 4096))))
    assert out == whole(key)
    assert len(key) - len(out) == REST + 256 - len(b"[redacted]")


def test_every_shape_and_prefix_is_in_the_docs() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "redaction.md").read_text()
    assert all(f"`{prefix.decode()}`" in page for prefix, _ in shapes.WORDS)
    everyone = [shape for _, shape in shapes.WORDS]
    everyone += [shapes.BEARER, shapes.HEADER, shapes.PEM, shapes.URL]
    assert all(f"| `{shape.name}` |" in page for shape in everyone)


PIECES = [
    *(prefix + body for prefix, body in TOKENS),
    "sk-",
    "AKIA",
    "http://u:",
    "@",
    "-----",
    "[",
    "\\",
    "x",
    " ",
]


@given(st.lists(st.lists(st.sampled_from(PIECES), max_size=4).map("".join), min_size=1, max_size=4))
def test_a_look_at_all_texts_at_once_misses_none_that_has_a_token(texts: list[str]) -> None:
    if redact_tokens("\0".join(texts)) == "\0".join(texts):
        assert [redact_tokens(text) for text in texts] == texts
