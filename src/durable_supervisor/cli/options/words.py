"""A command line without a mistake, taken apart as `by_typer` would, without loading it.

Whatever is not plain (a mistake, ``--help``, a name cut short) is left to `by_typer`: so that
there is one place that explains, and nothing to be kept alike but what a well-formed line
means.  A test holds the two together, option by option.  getopt(3) of the standard library
would do, but for its abbreviations and POSIXLY_CORRECT, which typer does not know; argparse
takes half a bare interpreter's start to load and fill.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .declared import Argument, Option, Parameter, parameters


class _NotPlainError(Exception):
    """For `by_typer`."""


def parse(
    function: Callable[..., Any], words: Sequence[str], *, interspersed: bool
) -> tuple[dict[str, Any], list[str]] | None:
    """The values by name and the words that are left; None where `by_typer` has to look.

    ``interspersed``: options may stand between arguments; else the first argument ends them.
    """
    taken = parameters(function)
    try:
        values, rest = _options(taken, list(words), interspersed=interspersed)
        rest = _arguments(taken, rest, values)
        for parameter in taken:
            if parameter.name not in values:
                values[parameter.name] = _default(parameter)
    except _NotPlainError:
        return None
    return values, rest


def _options(
    taken: list[Parameter], words: list[str], *, interspersed: bool
) -> tuple[dict[str, Any], list[str]]:
    by_flag = {flag: one for one in taken if isinstance(one.declared, Option) for flag in one.declared.flags}
    values: dict[str, Any] = {}
    arguments: list[str] = []
    while words:
        word = words.pop(0)
        if word == "--":
            break
        if word == "-" or not word.startswith("-"):
            arguments.append(word)
            if interspersed:
                continue
            break
        if word.startswith("--"):
            _long(word, by_flag, words, values)
        else:
            _short(word[1:], by_flag, words, values)
    return values, arguments + words


def _long(word: str, by_flag: dict[str, Parameter], words: list[str], values: dict[str, Any]) -> None:
    flag, equals, value = word.partition("=")
    parameter = _known(flag, by_flag)
    if parameter.flag:
        if equals:
            raise _NotPlainError
        values[parameter.name] = True
    else:
        _keep(parameter, value if equals else _next(words), values)


def _short(letters: str, by_flag: dict[str, Parameter], words: list[str], values: dict[str, Any]) -> None:
    """``-f``, ``-n5``, ``-n 5``, ``-fn5``."""
    while letters:
        parameter, letters = _known(f"-{letters[0]}", by_flag), letters[1:]
        if parameter.flag:
            values[parameter.name] = True
        else:
            _keep(parameter, letters or _next(words), values)
            break


def _known(flag: str, by_flag: dict[str, Parameter]) -> Parameter:
    if flag not in by_flag:
        raise _NotPlainError
    return by_flag[flag]


def _next(words: list[str]) -> str:
    """The value may look like an option: it is one all the same."""
    if not words:
        raise _NotPlainError
    return words.pop(0)


def _keep(parameter: Parameter, value: str, values: dict[str, Any]) -> None:
    if parameter.many:
        values.setdefault(parameter.name, []).append(value)
    else:
        values[parameter.name] = value


def _arguments(taken: list[Parameter], words: list[str], values: dict[str, Any]) -> list[str]:
    """Deal the words out.  What no argument takes is left over, which is for the caller to judge."""
    for parameter in taken:
        if isinstance(parameter.declared, Argument) and words:
            if parameter.many:
                values[parameter.name], words = words, []
            else:
                values[parameter.name], *words = words
    return words


def _default(parameter: Parameter) -> Any:
    if parameter.required:
        raise _NotPlainError
    return parameter.default
