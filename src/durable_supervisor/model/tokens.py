"""Where tokens stand in bytes: what looks like a credential (`shapes`), in a stream or in a text.

A prefix is public, so a stream may show it at once, and need hold nothing back before a whole one.

Without `re`, which a worker would pay for at its start, and ordered by what a miss costs: one byte
is looked for at memory speed, so bytes without ``-``, ``_``, ``A`` and ``J`` hold no word that is a
token; then all words that are long enough are found in one pass, however many shapes there are.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from .secrets import REDACTED, redact_text
from .shapes import (
    AUTHORIZATION,
    BEARER,
    DASHES,
    DIGITS,
    HEADER,
    LONGEST_LABEL,
    LONGEST_USER,
    PEM,
    SHORTEST,
    UPPER,
    URL,
    USER,
    WORD,
    WORD_PREFIXES,
    WORDS,
    Shape,
    marked,
)

CONTEXT = 96  # bytes: the longest prefix, with what stands before it
REST = 16 * 1024  # bytes of one body beyond its first ones; an RSA key of 16384 bits has 12 KiB
_IS_WORD, _LONG_WORD = marked(WORD), b"w" * SHORTEST
_INITIALS = frozenset(prefix[0] for prefix in WORD_PREFIXES)
_ESCAPES = frozenset(b"[;\\%")
_LONGEST_AUTHORITY = len("://:") + LONGEST_USER + URL.most
# As numbers: `in` first takes what it looks for as one, and bytes would cost CPython an exception each time.
_DASH, _UNDERSCORE, _A, _J, _SPACE, _AT = b"-_AJ @"


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


def redact(text: str, secrets: Collection[str], *, tokens: bool) -> str:
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


def without_tokens(form: object) -> object:
    """A document of JSON's types, each text in it by `redact_tokens`."""
    if isinstance(form, str):
        return redact_tokens(form)
    if isinstance(form, Mapping):
        return {name: without_tokens(value) for name, value in form.items()}
    return [without_tokens(value) for value in form] if isinstance(form, list | tuple) else form


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
    if _DASH in data or _UNDERSCORE in data or _A in data or _J in data:  # each of `WORDS` has one
        found += _words(data, fresh)
    if _SPACE in data:
        if b"earer " in data:
            found += _bearers(data)
        if b"uthorization" in data:
            found += _headers(data)
        if b"PRIVATE KEY" in data:
            found += _private_keys(data)
    # Without an "@", only the last authority may still become one with a password.
    unfinished = 0 if _AT in data else -_LONGEST_AUTHORITY  # from its end
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
    if len(data) - last < SHORTEST and (last > 0 or fresh):
        found += _word(data, last)  # it may become longer
    return found


def _word(data: bytes, begin: int) -> list[tuple[int, Shape]]:
    begin += _escape(data, begin)
    if not data.startswith(WORD_PREFIXES, begin):
        return []
    return [(begin + len(prefix), shape) for prefix, shape in WORDS if data.startswith(prefix, begin)]


def _escape(data: bytes, begin: int) -> int:
    """How much of a word is the end of an escape that stands before it: ``ESC [ 3 2 m``, ``\\n``, ``%3D``."""
    before = data[begin - 1 : begin] if begin else b""
    if before in (b"[", b";"):
        end = data.find(b"m", begin, begin + 4)
        return end - begin + 1 if end >= 0 and not data[begin:end].strip(DIGITS) else 0
    if before == b"\\":
        return 1 if data[begin : begin + 1] in (b"n", b"r", b"t") else 0
    return 2 if before == b"%" else 0


def _bearers(data: bytes) -> Iterator[tuple[int, Shape]]:
    for at in _each(data, b"earer "):
        if data[at - 1 : at] in (b"B", b"b"):
            yield at + len(b"earer "), BEARER


def _headers(data: bytes) -> Iterator[tuple[int, Shape]]:
    for at in _each(data, b"uthorization"):
        scheme = at + len(b"uthorization")
        for between in AUTHORIZATION:
            if data.startswith(between, scheme):
                yield scheme + len(between), HEADER


def _private_keys(data: bytes) -> Iterator[tuple[int, Shape]]:
    for at in _each(data, b"PRIVATE KEY"):
        begin = data.rfind(b"-----BEGIN ", max(at - len(b"-----BEGIN ") - LONGEST_LABEL, 0), at)
        end = at + len(b"PRIVATE KEY")
        end += len(b" BLOCK") if data.startswith(b" BLOCK", end) else 0
        label = data[begin + len(b"-----BEGIN ") : at]
        if begin >= 0 and not label.strip(UPPER + b" ") and data.startswith(DASHES, end):
            yield end + len(DASHES), PEM


def _passwords(data: bytes, begin: int) -> Iterator[tuple[int, Shape]]:
    for at in _each(data, b"://", begin):
        end = swallow(data, at + len(b"://"), USER, LONGEST_USER)
        if data[end : end + 1] == b":":
            yield end + 1, URL


def _each(data: bytes, needle: bytes, at: int = 0) -> Iterator[int]:
    while (at := data.find(needle, at)) >= 0:
        yield at
        at += len(needle)
