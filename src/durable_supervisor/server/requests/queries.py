"""Query parameters, as strict as the bodies: each one is known, well-formed and given once."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from multidict import MultiMapping

from ...model.arguments import MAX_PAGE
from ...model.errors import invalid
from ...model.states import RunState
from ...model.winsize import MAX_SIDE

_DIGITS = re.compile(r"[0-9]{1,19}")
_SECONDS = re.compile(r"[0-9]{1,10}(\.[0-9]{1,9})?")
_SHOWN = 64


@dataclass(frozen=True, slots=True)
class Parameter:
    """One query parameter: how its text is read, and how OpenAPI describes it.

    ``parse`` raises ValueError with what is wrong.  A ``repeated`` one may be given any
    number of times, and its value is a list.
    """

    name: str
    parse: Callable[[str], Any]
    description: str
    schema: Mapping[str, Any] = field(default_factory=lambda: {"type": "string"})
    repeated: bool = False


def read_query(given: MultiMapping[str], known: Sequence[Parameter]) -> dict[str, Any]:
    """What was given, parsed, by name.  Raises ``INVALID_REQUEST`` naming the parameter."""
    by_name = {parameter.name: parameter for parameter in known}
    found: dict[str, Any] = {}
    for name in dict.fromkeys(given):
        if name not in by_name:
            shown = name[:_SHOWN].encode("ascii", "backslashreplace").decode()
            raise invalid(shown, "is no parameter here", f"there are: {', '.join(by_name) or 'none'}")
        found[name] = _value(by_name[name], given.getall(name))
    return found


def _value(parameter: Parameter, texts: list[str]) -> Any:
    if len(texts) > 1 and not parameter.repeated:
        raise invalid(parameter.name, "is given more than once")
    try:
        values = [parameter.parse(text) for text in texts]
    except ValueError as error:
        raise invalid(parameter.name, str(error)) from None
    return values if parameter.repeated else values[0]


def _whole(text: str) -> int:
    if not _DIGITS.fullmatch(text) or int(text) >= 1 << 63:  # SQLite's integers
        raise ValueError("must be a whole number of 0 or more")
    return int(text)


def _between(least: int, most: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not _DIGITS.fullmatch(text) or not least <= int(text) <= most:
            raise ValueError(f"must be a whole number between {least} and {most}")
        return int(text)

    return parse


def _seconds(text: str) -> float:
    if not _SECONDS.fullmatch(text):
        raise ValueError("must be a number of seconds, such as 2.5")
    return float(text)


def _truth(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError("must be true or false")
    return text == "true"


def _text(text: str) -> str:
    if not 1 <= len(text) <= 128:
        raise ValueError("must be 1 to 128 characters")
    return text


def _state(text: str) -> RunState:
    if text not in RunState._value2member_map_:
        raise ValueError(f"must be out of {', '.join(RunState)}")
    return RunState(text)


def _label(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator:
        raise ValueError("must be NAME=VALUE")
    return name, value


def one_of(name: str, description: str, *choices: str) -> Parameter:
    """A parameter that is one of a few words."""

    def parse(text: str) -> str:
        if text not in choices:
            raise ValueError(f"must be out of {', '.join(choices)}")
        return text

    return Parameter(name, parse, description, {"type": "string", "enum": list(choices)})


def size(name: str, description: str) -> Parameter:
    """Columns or rows of a terminal."""
    return Parameter(name, _between(1, MAX_SIDE), description, _range(1, MAX_SIDE))


def _range(least: int, most: int) -> dict[str, Any]:
    return {"type": "integer", "minimum": least, "maximum": most}


_POSITION = _range(0, (1 << 63) - 1)
_BOOLEAN = {"type": "boolean"}
_WORD = {"type": "string", "minLength": 1, "maxLength": 128}

AFTER = Parameter("after", _whole, "the cursor: entries behind this one, 0 for all", _POSITION)
BEFORE = Parameter("before", _whole, "next_before of the page before", _POSITION)
LIMIT = Parameter(
    "limit", _between(1, MAX_PAGE), "entries at most; a page may hold fewer", _range(1, MAX_PAGE)
)
KIND = Parameter("kind", _text, "only events of this kind", _WORD, repeated=True)
OUTPUT = Parameter("output", _truth, "false: without the program's output", _BOOLEAN)
STATE = Parameter(
    "state", _state, "only runs in this state", {"type": "string", "enum": [*RunState]}, repeated=True
)
LABEL = Parameter(
    "label", _label, "only runs with this label, as NAME=VALUE", {"type": "string", "pattern": "="}
)
OWNER = Parameter("owner", _text, "whose; must be the caller's own, unless it is an operator", _WORD)
NAMESPACE = Parameter("namespace", _text, "the same", _WORD)
TIMEOUT = Parameter(
    "timeout",
    _seconds,
    "seconds to wait at most",
    {"type": "number", "minimum": 0, "maximum": 1e9},
)
EVENTS = Parameter("events", _truth, "false: the input alone, without the events", _BOOLEAN)
EOF_AFTER = Parameter("eof", _truth, "true: close the stdin afterwards", _BOOLEAN)
FOLLOWING = Parameter(
    "following",
    _whole,
    "bytes that further requests bring of the same write: max_stdin_bytes admits all of it, or none",
    {"type": "integer", "minimum": 0},
)
COLLECTED = Parameter("collected", _truth, "true: with runs whose logs are gone", _BOOLEAN)
DETAIL = one_of("detail", "full: inspect documents instead of summaries", "summary", "full")
