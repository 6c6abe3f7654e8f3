"""Options and arguments, declared once: in the signatures of the verbs.

``start(call, cwd: Annotated[str | None, Option("--cwd", …)] = None, …)`` says all there is.
Two read it: `words` takes a command line apart, and `by_typer` makes help, completion and
the errors of it.  They are not typer's own `typer.Option`, because importing typer takes as
long as four bare interpreters, and a command line without a mistake needs nothing of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, get_args

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


REQUIRED: Final = object()


class Parameter:
    """One parameter of a verb; its ``default`` may be `REQUIRED`.

    No NamedTuple: the first one of a process takes a millisecond, and a command line has a worker to start.
    """

    __slots__ = ("declared", "default", "kind", "name")

    def __init__(self, name: str, kind: Any, declared: Option | Argument, default: Any) -> None:
        self.name = name
        self.kind = kind  # bool, str or list[str], perhaps ``| None``
        self.declared = declared
        self.default = default

    @property
    def required(self) -> bool:
        return self.default is REQUIRED

    @property
    def many(self) -> bool:
        return self.kind == list[str] or list[str] in get_args(self.kind)

    @property
    def flag(self) -> bool:
        return self.kind is bool


def parameters(function: Callable[..., Any]) -> list[Parameter]:
    """What a verb takes, in order; the `Call`, which comes first, left out.

    (Not by `inspect.signature`: to load that takes half as long as a bare interpreter does in all.)
    """
    code = function.__code__
    names = code.co_varnames[: code.co_argcount]
    defaults = function.__defaults__ or ()
    required = [REQUIRED] * (len(names) - len(defaults))
    found = []
    for name, default in zip(names, (*required, *defaults), strict=True):
        annotation = _named(function.__annotations__[name], function.__globals__)
        kind, *declared = get_args(annotation) or (None,)
        if declared and isinstance(declared[0], Option | Argument):
            found.append(Parameter(name, kind, declared[0], default))
    return found


def _named(dotted: str, names: Mapping[str, Any]) -> Any:
    """What an annotation refers to: a parameter's is a name, so that nothing is compiled to find it."""
    first, *rest = dotted.split(".")
    found = names[first]
    for name in rest:
        found = getattr(found, name)
    return found


def one_of(*words: str) -> Completion:
    """Completes an option that takes one of these."""

    def complete(state_dir: str | None, incomplete: str) -> list[str]:
        return [word for word in words if word.startswith(incomplete)]

    return complete
