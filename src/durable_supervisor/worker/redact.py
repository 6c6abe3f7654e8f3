"""Streaming filters between the program's pipe and the log.

`Redactor` replaces secret values, also when they arrive in pieces: bytes that may
be the beginning of a secret wait for what follows.  `TokenRedactor` does so for what looks
like a credential.  It comes second: a registered value may begin inside a token and end after it,
and nothing of it may stay.  `Utf8Boundary` keeps an event
from ending inside a character, so that every event's text stands by itself.
"""

from __future__ import annotations

from ..model.needles import Needles
from ..model.secrets import REDACTED
from ..model.tokens import CONTEXT, bodies, swallow

_MARK = REDACTED.encode("ascii")
_END = 3  # bytes of a beginning that is more than a chance; a shorter one is looked up
_LONG = 512  # bytes of a secret


class Redactor:
    """Replaces each maximal stretch of secret bytes by one ``[redacted]``.

    Memory is bounded by the longest secret: ``_held`` is the tail that may
    still become one; the first ``_covered`` bytes of it belong to a secret whose
    mark was already given out.  ``_marked``: that mark is the last thing given out.
    """

    def __init__(self, secrets: list[bytes]) -> None:
        self._secrets = [secret for secret in secrets if secret]
        self._needles = Needles(self._secrets)
        self._starts = frozenset(
            secret[:size] for secret in self._secrets for size in (1, 2) if len(secret) > size
        )
        # Bytes that are in no secret end no beginning of one: one look for many.  Of a long one it would take
        # longer than to look for its own beginning.
        self._long = [secret for secret in self._secrets if len(secret) > _LONG]
        self._insides = b"".join(secret for secret in self._secrets if len(secret) <= _LONG)
        self._held = b""
        self._covered = 0
        self._marked = False

    def feed(self, data: bytes) -> bytes:
        if not self._secrets:
            return data
        buffer = self._held + data
        hold = self._possible_start(buffer)
        return self._emit(buffer, hold)

    def finish(self) -> bytes:
        """The stream has ended: what waited is not the secret it began like, but may hold a shorter one."""
        return self._emit(self._held, len(self._held))

    def _emit(self, buffer: bytes, hold: int) -> bytes:
        """Everything before ``hold``, marks in place of secrets; keeps the rest."""
        parts: list[bytes | memoryview] = []
        position = self._covered
        view = memoryview(buffer)  # its slices are no copies
        marked = self._marked  # the stretch that ends at ``position`` already has its mark
        for start, end in self._needles.spans(buffer):
            if start >= hold:
                break  # it is wholly in the part that waits, and will be found again
            if start > position or not marked:
                parts += (view[position:start], _MARK)
            position, marked = max(position, end), True
        if position < hold:
            parts.append(view[position:hold] if parts else buffer[position:hold])
            marked = False
        self._marked = marked
        self._covered = max(0, position - hold)
        self._held = buffer[hold:]
        return b"".join(parts)

    def _possible_start(self, buffer: bytes) -> int:
        """The earliest position from which the rest may be the beginning of a secret."""
        earliest = size = len(buffer)
        for start in (buffer[-1:], buffer[-2:]):
            if start in self._starts:
                earliest = size - len(start)
        end = buffer[-_END:]
        for secret in self._secrets if end in self._insides else self._long:
            begin = secret[:_END]
            at = buffer.find(begin, max(0, size - len(secret) + 1))
            while 0 <= at < earliest:
                if secret.startswith(end, size - at - _END) and secret.startswith(buffer[at:]):
                    earliest = at
                    break
                at = buffer.find(begin, at + 1)
        return earliest


class TokenRedactor:
    """Replaces the body of each token by ``[redacted]``; its prefix is public, and goes out at once.

    ``_context`` are the last bytes that are dealt with, ``_held`` is a body that is not
    decided, at most `Shape.most` bytes.  Of one that is confirmed, the rest is left out as it comes.
    """

    def __init__(self) -> None:
        self._context = b""
        self._held = b""
        self._rest = b""
        self._left = 0  # bytes that the last body may still go on with

    def finish(self) -> bytes:
        """The stream has ended: what waited has all that it will ever have."""
        return self.feed(b"", final=True)

    def feed(self, data: bytes, *, final: bool = False) -> bytes:
        buffer = self._context + self._held + data
        begin = position = len(self._context)
        if self._left:
            position = self._swallow(buffer, position, self._rest, self._left)
        parts: list[bytes] = []
        done = len(buffer)
        fresh = begin < CONTEXT
        for body in bodies(buffer, position, fresh=fresh, final=final):
            parts.append(buffer[position : body.start])
            if body.end is None:
                position = done = body.start
                break
            parts.append(_MARK)
            position = body.end
            self._rest, self._left = body.rest or b"", body.left
        self._context = buffer[max(done - CONTEXT, 0) : done]
        if position == begin and not self._held and done == len(buffer):
            return data  # as nearly always: without a copy
        parts.append(buffer[position:done])
        self._held = buffer[done:]
        return b"".join(parts)

    def _swallow(self, buffer: bytes, position: int, rest: bytes, left: int) -> int:
        end = swallow(buffer, position, rest, left)
        self._left = left - (end - position) if end == len(buffer) else 0
        return end


class OutputFilter:
    """All of them in a row, in the order that keeps secrets whole.  Made at the first byte: many streams stay
    empty.
    """

    def __init__(self, secrets: list[bytes], *, tokens: bool) -> None:
        self._secrets = secrets
        self._with_tokens = tokens
        self._row: tuple[Redactor | None, TokenRedactor | None, Utf8Boundary] | None = None

    def feed(self, data: bytes) -> bytes:
        if self._row is None:
            self._row = (
                Redactor(self._secrets) if self._secrets else None,
                TokenRedactor() if self._with_tokens else None,
                Utf8Boundary(),
            )
        values, tokens, boundary = self._row
        if values is not None:
            data = values.feed(data)
        if tokens is not None:
            data = tokens.feed(data)
        return boundary.feed(data)

    def finish(self) -> bytes:
        if self._row is None:
            return b""
        values, tokens, boundary = self._row
        rest = b"" if values is None else values.finish()
        if tokens is not None:
            rest = tokens.feed(rest) + tokens.finish()
        return boundary.feed(rest) + boundary.finish()


class Utf8Boundary:
    """Holds back up to three bytes of a character that is not complete yet."""

    def __init__(self) -> None:
        self._held = b""

    def feed(self, data: bytes) -> bytes:
        if self._held:
            data = self._held + data
        elif data[-1:] < b"\x80":  # as nearly always: no character is cut
            return data
        keep = incomplete_tail(data)
        self._held = data[len(data) - keep :] if keep else b""
        return data[: len(data) - keep] if keep else data

    def finish(self) -> bytes:
        rest, self._held = self._held, b""
        return rest


def incomplete_tail(data: bytes) -> int:
    """How many bytes at the end begin a UTF-8 sequence (RFC 3629) that lacks its rest: 0 to 3."""
    for back in range(1, min(3, len(data)) + 1):
        byte = data[-back]
        if byte & 0xC0 == 0x80:
            continue
        length = 2 if 0xC2 <= byte <= 0xDF else 3 if byte >> 4 == 0xE else 4 if 0xF0 <= byte <= 0xF4 else 1
        return back if length > back else 0
    return 0
