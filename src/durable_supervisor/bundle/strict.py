"""Reads JSON of unknown origin: only what every reader of it and every writer of ours can handle."""

from __future__ import annotations

import json
import math
from typing import Any, NoReturn

from .contents import FormatError

MAX_VALUES = 4_000_000  # in one document
MAX_DEPTH = 64  # ours have a tenth of it; what nests deeper, json could read and then not write
_NUMBERS = range(-(1 << 63), 1 << 64)


def object_of(name: str, content: bytes) -> dict[str, Any]:
    """A document that is one JSON object.  Raises `FormatError`, which calls it by ``name``."""
    # A few kilobytes can unpack to millions of empty lists, each many times its text in memory.
    if sum(map(content.count, (b",", b"[", b"{"))) > MAX_VALUES:
        raise FormatError(f"{name} has too many values")
    try:
        form = json.loads(content, parse_constant=_no_number, parse_float=_finite, parse_int=_whole)
    except (ValueError, RecursionError):
        raise FormatError(f"{name} is not JSON") from None
    if not isinstance(form, dict):
        raise FormatError(f"{name} is not a JSON object")
    _check_depth(name, form)
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


def _check_depth(name: str, form: dict[str, Any]) -> None:
    level: list[Any] = [form]
    for _ in range(MAX_DEPTH):
        inner = (child for node in level for child in (node.values() if isinstance(node, dict) else node))
        level = [child for child in inner if isinstance(child, dict | list)]
        if not level:
            return
    raise FormatError(f"{name} is nested too deeply")
