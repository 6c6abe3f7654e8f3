"""What looks like a credential, whoever issued it: the table of shapes, and where they stand in bytes.

A shape is a public prefix (``sk-``, ``Bearer ``) and a body.  Only the body is secret, so a
stream may show the prefix at once, and need hold nothing back before it has seen a whole one.
A body is judged by its first ``most`` bytes; a confirmed one goes on for as long as its alphabet does.

Without `re`, which a worker would pay for at its start, and ordered by what a miss costs: one byte
is looked for at memory speed, so text that has no ``-``, ``_``, ``A`` and ``J`` holds no word that is
a token; then all words of `_SHORTEST` bytes are found in one pass, whatever their number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from .secrets import REDACTED, redact_text

CONTEXT = 96  # bytes: the longest prefix, with what stands before it
REST = 16 * 1024  # bytes of one body beyond its first ones; an RSA key of 16384 bits has 12 KiB
_SHORTEST = 18  # the shortest word that is a token, prefix included

_UPPER = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_DIGITS = b"0123456789"
_ALNUM = _UPPER + _UPPER.lower() + _DIGITS
_WORD = _ALNUM + b"_-"
_CREDENTIAL = _ALNUM + b"-._~+/="  # of an Authorization header (RFC 9110, token68)
_ARMOUR = _ALNUM + b"+/=-:,\\ \t\r\n"  # of a PEM file (RFC 7468) and its old headers, also as a JSON string
_PASSWORD = bytes(byte for byte in range(33, 127) if byte not in b"/?#\"'<>\\^`{|}")  # RFC 3986, and "@"
_USER = bytes(byte for byte in _PASSWORD if byte not in b":@")
_DASHES = b"-----"
_LONGEST_USER = 64
_LONGEST_LABEL = 11  # "ENCRYPTED " before "PRIVATE KEY"


def _map(letters: bytes) -> bytes:
    """For `bytes.translate`: these become ``w``, all others a space."""
    return bytes(ord("w") if byte in letters else ord(" ") for byte in range(256))


_IS_WORD, _LONG_WORD = _map(_WORD), b"w" * _SHORTEST
_IS_BASE64, _LONG_LINE = _map(_ALNUM + b"+/="), b"w" * 32


class Shape:
    """``likely`` judges the first ``most`` bytes of a body, or less where its alphabet or ``stop`` ends it:
    how many of them are secret, 0 for none.  Unless ``whole``, more bytes never take back a yes.
    ``rest`` are the bytes that it goes on with; None: with none.
    """

    __slots__ = ("alphabet", "likely", "most", "name", "rest", "stop", "whole")

    def __init__(
        self,
        name: str,
        likely: Callable[[bytes], int],
        *,
        most: int,
        alphabet: bytes = _WORD,
        rest: bytes | None = _WORD,
        stop: bytes = b"",
        whole: bool = False,
    ) -> None:
        self.name = name
        self.likely = likely
        self.most = most
        self.alphabet = alphabet
        self.rest = rest
        self.stop = stop
        self.whole = whole


class Body:
    """One body: from ``start`` to ``end``, and on with bytes of ``rest``, up to ``left`` more.

    ``end`` is None while what has come does not decide yet.
    """

    __slots__ = ("end", "left", "rest", "start")

    def __init__(self, start: int, end: int | None, rest: bytes | None = None, left: int = 0) -> None:
        self.start = start
        self.end = end
        self.rest = rest
        self.left = left


def _random(least: int, unlike_words: int = 3, letters: bytes = _WORD) -> Callable[[bytes], int]:
    """At least so many bytes, the first ones of these letters, and digits or capitals among them:
    a name in lower case is none."""

    def likely(body: bytes) -> int:
        plain = len(body) >= least and not body[:least].strip(letters)
        return len(body) if plain and len(body.translate(None, _NO_WORDS)) >= unlike_words else 0

    return likely


_NO_WORDS = bytes(byte for byte in range(256) if byte not in _UPPER + _DIGITS)


def _access_key(body: bytes) -> int:
    """Exactly 16 of base 32: in capitals alone, a longer or shorter word is a name."""
    return 16 if len(body) == 16 and not body.strip(_UPPER + _DIGITS) else 0


def _jwt(body: bytes) -> int:
    """What follows ``eyJ`` (``{"`` in base64): the rest of the header, a dot, and a payload."""
    header, _, payload = body.partition(b".")
    return len(body) if len(header) >= _SHORTEST - 3 and len(payload.partition(b".")[0]) >= 16 else 0


def _armoured(body: bytes) -> int:
    """To the end of the first line of base64: without one, it is a text about keys."""
    mapped = body.replace(b"\\n", b"  ").translate(_IS_BASE64)
    begin = mapped.find(_LONG_LINE)
    end = mapped.find(b" ", begin)
    return 0 if begin < 0 else end if end >= 0 else len(body)


def _password(body: bytes) -> int:
    """All before the last ``@`` of what may be the authority; ``%s`` is a template."""
    end = body.rfind(b"@")
    return end if end >= 3 else 0


# Words: a body that follows one of these prefixes, which begins its word.
_WORDS: tuple[tuple[bytes, Shape], ...] = (
    (b"sk-", Shape("api_key", _random(20), most=40)),
    *((b"gh%c_" % kind, Shape("github", _random(36, letters=_ALNUM), most=36)) for kind in b"pousr"),
    (b"github_pat_", Shape("github", _random(22), most=40)),
    (b"AKIA", Shape("aws", _access_key, most=17, whole=True)),
    (b"ASIA", Shape("aws", _access_key, most=17, whole=True)),
    *((b"xox%c-" % kind, Shape("slack", _random(15), most=40)) for kind in b"baprs"),
    (b"glpat-", Shape("gitlab", _random(20), most=40)),
    (b"AIza", Shape("google", _random(35), most=35)),
    (b"npm_", Shape("npm", _random(36, letters=_ALNUM), most=36)),
    (b"eyJ", Shape("jwt", _jwt, most=4096, alphabet=_WORD + b".", rest=_WORD + b".")),
)
_WORD_PREFIXES = tuple(prefix for prefix, _ in _WORDS)
_INITIALS = frozenset(prefix[0] for prefix in _WORD_PREFIXES)
_ESCAPES = frozenset(b"[;\\%")

_BEARER = Shape("bearer", _random(20, letters=_CREDENTIAL), most=40, alphabet=_CREDENTIAL, rest=_CREDENTIAL)
_HEADER = Shape(
    "authorization", _random(8, 2, letters=_CREDENTIAL), most=64, alphabet=_CREDENTIAL, rest=_CREDENTIAL
)
_PEM = Shape(
    "private_key",
    _armoured,
    most=256,
    alphabet=_ARMOUR,
    rest=bytes(byte for byte in range(256) if byte not in b"-"),
    stop=_DASHES,
)
_URL = Shape("url_password", _password, most=256, alphabet=_PASSWORD, rest=None, whole=True)

_LONGEST_AUTHORITY = len("://:") + _LONGEST_USER + _URL.most

_AUTHORIZATION = tuple(
    between + scheme
    for between in (b": ", b":", b'": "', b'":"', b"': '", b"=")
    for scheme in (b"Basic ", b"basic ", b"Bearer ", b"bearer ", b"Token ", b"token ")
)


def bodies(data: bytes, position: int, *, fresh: bool, final: bool) -> list[Body]:
    """The bodies in ``data`` from ``position`` on, in order; what is before it is context.

    ``fresh``: the stream begins with ``data``; ``final``: it ends with it.  A body whose end is None is
    the last: all from its start on has to wait for what follows.
    """
    found: list[Body] = []
    for start, shape in _candidates(data, fresh):
        body = _judge(data, start, shape, final) if start >= position else None
        if body is None:
            continue
        found.append(body)
        if body.end is None:
            break
        position = body.end
    return found


def redact(text: str, secrets: Iterable[str], *, tokens: bool) -> str:
    """``text`` without secret values and, with ``tokens``, without what looks like a credential."""
    known = redact_text(text, secrets)
    return redact_tokens(known) if tokens else known


def redact_tokens(text: str) -> str:
    """``text`` with the body of every token replaced; for argv, paths and messages (not streams)."""
    data = text.encode("utf-8", "surrogateescape")
    parts: list[bytes] = []
    position = 0
    for body in bodies(data, 0, fresh=True, final=True):
        parts += (data[position : body.start], REDACTED.encode("ascii"))
        position = len(data) if body.end is None else body.end  # it never is None: nothing can follow
    return (b"".join(parts) + data[position:]).decode("utf-8", "surrogateescape") if parts else text


def swallow(data: bytes, start: int, alphabet: bytes, bound: int) -> int:
    """Where bytes of this alphabet end, at most ``bound`` of them."""
    window = data[start : start + bound]
    return start + len(window) - len(window.lstrip(alphabet))


def _judge(data: bytes, start: int, shape: Shape, final: bool) -> Body | None:
    """None: it is none."""
    end = swallow(data, start, shape.alphabet, shape.most)
    stop = data.find(shape.stop, start, end) if shape.stop else -1
    if stop >= 0:
        end = stop
    undecided = end == len(data) and end - start < shape.most and not final
    secret = 0 if undecided and shape.whole else shape.likely(data[start:end])
    if not secret:
        return Body(start, None) if undecided else None
    if shape.rest is None:
        return Body(start, start + secret)
    bound = start + shape.most + REST
    end = swallow(data, start + secret, shape.rest, bound - start - secret)
    return Body(start, end, shape.rest, bound - end if end == len(data) else 0)


def _candidates(data: bytes, fresh: bool) -> list[tuple[int, Shape]]:
    """Where a body may start, after a whole prefix; in order."""
    found: list[tuple[int, Shape]] = []
    if b"-" in data or b"_" in data or b"A" in data or b"J" in data:  # each of `_WORDS` has one
        found += _words(data, fresh)
    if b" " in data:
        if b"earer " in data:
            found += _bearers(data)
        if b"uthorization" in data:
            found += _headers(data)
        if b"PRIVATE KEY" in data:
            found += _private_keys(data)
    # Without an "@", only the last authority may still become one with a password.
    unfinished = 0 if b"@" in data else max(len(data) - _LONGEST_AUTHORITY, 0)
    if data.find(b"://", unfinished) >= 0:
        found += _passwords(data, unfinished)
    if len(found) > 1:
        found.sort(key=lambda candidate: candidate[0])
    return found


def _words(data: bytes, fresh: bool) -> list[tuple[int, Shape]]:
    found: list[tuple[int, Shape]] = []
    mapped = data.translate(_IS_WORD)
    end = -1 if fresh else mapped.find(b" ")  # where it is not, the first word began before
    begin = mapped.find(_LONG_WORD, max(end, 0)) if fresh or end >= 0 else -1
    while begin >= 0:
        if data[begin] in _INITIALS or data[begin - 1] in _ESCAPES:
            found += _word(data, begin)
        end = mapped.find(b" ", begin)
        begin = mapped.find(_LONG_WORD, end) if end >= 0 else -1
    last = mapped.rfind(b" ") + 1
    if len(data) - last < _SHORTEST and (last > 0 or fresh):
        found += _word(data, last)  # it may become longer
    return found


def _word(data: bytes, begin: int) -> list[tuple[int, Shape]]:
    begin += _escape(data, begin)
    if not data.startswith(_WORD_PREFIXES, begin):
        return []
    return [(begin + len(prefix), shape) for prefix, shape in _WORDS if data.startswith(prefix, begin)]


def _escape(data: bytes, begin: int) -> int:
    """How much of a word is the end of an escape that stands before it: ``ESC [ 3 2 m``, ``\\n``, ``%3D``."""
    before = data[begin - 1 : begin] if begin else b""
    if before in (b"[", b";"):
        end = data.find(b"m", begin, begin + 4)
        return end - begin + 1 if end >= 0 and not data[begin:end].strip(_DIGITS) else 0
    if before == b"\\":
        return 1 if data[begin : begin + 1] in (b"n", b"r", b"t") else 0
    return 2 if before == b"%" else 0


def _bearers(data: bytes) -> Iterator[tuple[int, Shape]]:
    for at in _each(data, b"earer "):
        if data[at - 1 : at] in (b"B", b"b"):
            yield at + len(b"earer "), _BEARER


def _headers(data: bytes) -> Iterator[tuple[int, Shape]]:
    for at in _each(data, b"uthorization"):
        scheme = at + len(b"uthorization")
        for between in _AUTHORIZATION:
            if data.startswith(between, scheme):
                yield scheme + len(between), _HEADER


def _private_keys(data: bytes) -> Iterator[tuple[int, Shape]]:
    for at in _each(data, b"PRIVATE KEY"):
        begin = data.rfind(b"-----BEGIN ", max(at - len(b"-----BEGIN ") - _LONGEST_LABEL, 0), at)
        end = at + len(b"PRIVATE KEY")
        end += len(b" BLOCK") if data.startswith(b" BLOCK", end) else 0
        label = data[begin + len(b"-----BEGIN ") : at]
        if begin >= 0 and not label.strip(_UPPER + b" ") and data.startswith(_DASHES, end):
            yield end + len(_DASHES), _PEM


def _passwords(data: bytes, begin: int) -> Iterator[tuple[int, Shape]]:
    for at in _each(data, b"://", begin):
        end = swallow(data, at + len(b"://"), _USER, _LONGEST_USER)
        if data[end : end + 1] == b":":
            yield end + 1, _URL


def _each(data: bytes, needle: bytes, at: int = 0) -> Iterator[int]:
    while (at := data.find(needle, at)) >= 0:
        yield at
        at += len(needle)
