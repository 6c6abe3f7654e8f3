"""A stream of entries on one connection, and what its messages say."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from .answer import error_of, told_error
from .failures import LostError, odd_answer
from .link import Link, is_stream
from .request import Form, Request
from .sse import Message, Parser
from .steps import Steps

T = TypeVar("T")

# Messages that carry no entry, and after which nothing comes on this connection.
LAST_WORDS = frozenset({"bye", "end", "error"})


class Stream:
    """Server-sent events as they come."""

    def __init__(self, link: Link, silence: float) -> None:
        self._link = link
        self._silence = silence
        self._parser = Parser()

    @classmethod
    def open(cls, link: Link, request: Request) -> Steps[Stream]:
        """Raises `LostError`, and what the service answers instead of a stream."""
        head = yield from link.ask(request)
        if is_stream(head):
            return cls(link, request.silence)
        answer = yield from link.answer(head, request)
        raise error_of(request.verb, answer) or odd_answer(request.verb)

    def read(self) -> Steps[list[Message] | None]:
        """Messages, none for a heartbeat; None when the connection ends.  Raises `LostError`."""
        piece = yield from self._link.piece(self._silence)
        return None if piece is None else self._parser.feed(piece)


@dataclass(frozen=True, slots=True)
class Batch(Generic[T]):
    """Entries in order, the cursor behind them, and the message that ended the stream, if one did."""

    entries: list[T]
    after: int
    last: Message | None


def batch_of(verb: str, messages: Iterable[Message], after: int, make: Callable[[Form], T]) -> Batch[T]:
    """What of these messages lies behind the cursor.  Raises ``INTERNAL`` for what cannot be read."""
    entries: list[T] = []
    try:
        for message in messages:
            if message.kind in LAST_WORDS:
                return Batch(entries, after, message)
            position = int(message.id)
            if position > after:  # whatever a service repeats, each entry is handed out once
                entries.append(make(json.loads(message.data)))
                after = position
    except (KeyError, TypeError, ValueError) as cause:
        raise odd_answer(verb) from cause
    return Batch(entries, after, None)


def check_end(verb: str, last: Message) -> None:
    """Returns when all has been delivered.  Raises the failure that it tells, `LostError` for a goodbye."""
    if last.kind == "bye":
        raise LostError("it is shutting down")
    if last.kind == "error":
        try:
            form = json.loads(last.data)
        except ValueError as cause:
            raise odd_answer(verb) from cause
        raise told_error(verb, form)
