"""What a frozen dataclass with keyword fields is, for the few that every start makes.

`dataclasses` brings `inspect` along and compiles each of its classes anew: for a command line together three
quarters of what a bare interpreter takes to start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, Self, dataclass_transform

if TYPE_CHECKING:
    import inspect


_MISSING: Any = object()


class _Signature:
    """For `inspect.signature`, and so for help(): made when somebody asks."""

    def __get__(self, value: Value | None, kind: type[Value]) -> inspect.Signature:
        from inspect import Parameter, Signature

        keyword = Parameter.KEYWORD_ONLY
        defaults = {name: getattr(kind, name, Parameter.empty) for name in kind.FIELDS}
        types = kind.__annotations__
        return Signature(
            [
                Parameter(name, keyword, default=default, annotation=types[name])
                for name, default in defaults.items()
            ]
        )


@dataclass_transform(frozen_default=True, kw_only_default=True)
class Value:
    """A subclass annotates its fields; the defaults are shared, so they are nothing that can be changed.

    Its `__post_init__` checks what was given, and may put it into its final form.
    """

    FIELDS: ClassVar[tuple[str, ...]] = ()  # their names, in order
    _defaults: ClassVar[dict[str, Any]] = {}  # the defaults by name, in order; `_MISSING` where there is none
    _required: ClassVar[tuple[str, ...]] = ()
    __signature__: ClassVar = _Signature()

    def __init_subclass__(cls) -> None:
        cls.FIELDS = tuple(cls.__annotations__)
        cls._defaults = {name: getattr(cls, name, _MISSING) for name in cls.FIELDS}
        cls._required = tuple(name for name, default in cls._defaults.items() if default is _MISSING)

    def __init__(self, **given: Any) -> None:
        values = self.__dict__
        values.update(self._defaults)
        values.update(given)
        for name in self._required:
            if values[name] is _MISSING:
                raise TypeError(f"{type(self).__name__}() missing a required keyword argument: {name!r}")
        if len(values) > len(self.FIELDS):
            name = next(name for name in given if name not in self.FIELDS)
            raise TypeError(f"{type(self).__name__}() got an unexpected keyword argument {name!r}")
        self.__post_init__()

    def __post_init__(self) -> None:
        """Raises what is wrong with the fields."""

    def replace(self, **changes: Any) -> Self:
        """The same with other values for these fields, checked anew."""
        return type(self)(**{**self.__dict__, **changes})

    __replace__ = replace  # for copy.replace, from Python 3.13 on

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"cannot assign to {name!r}: a {type(self).__name__} does not change")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"cannot delete {name!r}: a {type(self).__name__} does not change")

    def __eq__(self, other: object) -> bool:
        return self.__dict__ == other.__dict__ if type(other) is type(self) else NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(self.__dict__.values()))

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in self.__dict__.items())
        return f"{type(self).__name__}({shown})"
