"""Reads JSON of unknown origin: only what every reader of it and every writer of ours can handle."""

from __future__ import annotations

import json
import math
from typing import Any, NoReturn

from ..runlog.format import is_too_deep
from .contents import FormatError

MAX_VALUES = 4_000_000  # in one document
_NUMBERS = range(-(1 << 63), 1 << 64)


def object_of(name: str, content: bytes) -> dict[str, Any]:
    """A document that is one JSON object.  Raises `FormatError`, which calls it by ``name``."""
    # A few kilobytes can unpack to millions of empty lists, each many times its text in memory.
    if sum(map(content.count, (b",", b"[", b"{"))) > MAX_VALUES:
        raise FormatError(f"{name} has too many values")
    try:
        form = json.loads(
            content,
            parse_constant=_no_number,
            parse_float=_finite,
            parse_int=_whole,
            object_pairs_hook=_object,
        )
    except (ValueError, RecursionError):
        raise FormatError(f"{name} is not JSON") from None
    if not isinstance(form, dict):
        raise FormatError(f"{name} is not a JSON object")
    if is_too_deep(form):
        raise FormatError(f"{name} is nested too deeply")
    return form


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    form = dict(pairs)
    if len(form) != len(pairs):
        raise ValueError("a name is there twice")  # readers differ in which of the two counts
    return form


def _no_number(word: str) -> NoReturn:
    raise ValueError(f"{word} is no number")  # json takes NaN and Infinity


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError("a number beyond all numbers")
    return number


def _whole(text: str) -> int:
    number = int(text)
    if number not in _NUMBERS:
        raise ValueError("a number of more than 64 bits")
    return number
