"""What the service answers, and the value it stands for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from ..model.errors import SupervisorError
from .failures import odd_answer
from .request import Call, Form

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Answer:
    """A status and the JSON object that came with it."""

    status: int
    form: Form


def value_of(call: Call[T], answer: Answer) -> T:
    """Raises the SupervisorError that the service tells, and ``INTERNAL`` for what cannot be read."""
    error = error_of(call.request.verb, answer)
    if error is not None:
        raise error
    try:
        return call.make(answer.form)
    except (KeyError, TypeError, ValueError) as cause:
        raise odd_answer(call.request.verb) from cause


def error_of(verb: str, answer: Answer) -> SupervisorError | None:
    """The failure that an answer tells, if it tells one."""
    return None if answer.status < 400 else told_error(verb, answer.form)


def told_error(verb: str, form: Form) -> SupervisorError:
    """An error document as the error it is; ``INTERNAL`` where it is none."""
    try:
        return SupervisorError.from_dict(form["error"])
    except (KeyError, TypeError, ValueError):
        return odd_answer(verb)
