"""Options and arguments, declared once: in the signatures of the verbs.

``start(call, cwd: Annotated[str | None, Option("--cwd", …)] = None, …)`` says all there is.
Two read it: `words` takes a command line apart, and `by_typer` makes help, completion and
the errors of it.  They are not typer's own `typer.Option`, because importing typer takes as
long as four bare interpreters, and a command line without a mistake needs nothing of it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, get_args

# From the state directory as given and the beginning of a word: words, or (word, what it is).
Completion = Callable[[str | None, str], Iterable[str | tuple[str, str]]]


class Option:
    """``--name VALUE``; of a bool a flag, of a list to be repeated."""

    __slots__ = ("complete", "flags", "help", "metavar")

    def __init__(
        self,
        *flags: str,
        help: str,  # noqa: A002  as typer calls it
        metavar: str | None = None,
        complete: Completion | None = None,
    ) -> None:
        self.flags = flags
        self.help = help
        self.metavar = metavar
        self.complete = complete


class Argument:
    """A word without a name; a list takes all that are left."""

    __slots__ = ("complete", "help", "metavar")

    def __init__(
        self,
        *,
        help: str,  # noqa: A002  as typer calls it
        metavar: str,
        complete: Completion | None = None,
    ) -> None:
        self.help = help
        self.metavar = metavar
        self.complete = complete


class Parameter(NamedTuple):
    """One parameter of a verb."""

    name: str
    kind: Any  # bool, str or list[str], perhaps ``| None``
    declared: Option | Argument
    default: Any

    @property
    def required(self) -> bool:
        return self.default is inspect.Parameter.empty

    @property
    def many(self) -> bool:
        return self.kind == list[str] or list[str] in get_args(self.kind)

    @property
    def flag(self) -> bool:
        return self.kind is bool


def parameters(function: Callable[..., Any]) -> list[Parameter]:
    """What a verb takes, in order; the `Call`, which comes first, left out."""
    found = []
    for name, parameter in inspect.signature(function, eval_str=True).parameters.items():
        kind, *declared = get_args(parameter.annotation) or (None,)
        if declared and isinstance(declared[0], Option | Argument):
            found.append(Parameter(name, kind, declared[0], parameter.default))
    return found


def one_of(*words: str) -> Completion:
    """Completes an option that takes one of these."""

    def complete(state_dir: str | None, incomplete: str) -> list[str]:
        return [word for word in words if word.startswith(incomplete)]

    return complete
