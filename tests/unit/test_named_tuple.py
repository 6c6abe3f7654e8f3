"""A named tuple of the product's is what one of `typing` is."""

from __future__ import annotations

import inspect
import pickle
from typing import get_type_hints

import pytest

from durable_supervisor.model.named_tuple import NamedTuple


class Point(NamedTuple):
    """Where it is."""

    x: int
    y: int
    label: str | None = None

    @property
    def far(self) -> bool:
        return self.x + self.y > self.limit()

    @classmethod
    def origin(cls) -> Point:
        return cls(0, 0)

    @staticmethod
    def limit() -> int:
        return 10


def test_it_is_made_by_place_or_by_name_with_its_defaults() -> None:
    assert Point(1, y=2) == (1, 2, None) == Point(1, 2, None)
    assert Point(1, 2)._replace(label="home").label == "home"
    with pytest.raises(TypeError, match="y"):
        Point(1)  # type: ignore[call-arg]
    with pytest.raises(AttributeError):
        Point(1, 2).x = 3  # type: ignore[misc]


def test_its_methods_are_those_of_its_class() -> None:
    assert Point(9, 9).far
    assert not Point.origin().far
    assert repr(Point(1, 2)) == "Point(x=1, y=2, label=None)"


def test_it_says_what_it_is() -> None:
    assert (Point.__doc__, Point.__module__, Point.__qualname__) == ("Where it is.", __name__, "Point")
    assert Point._fields == ("x", "y", "label")
    assert get_type_hints(Point) == {"x": int, "y": int, "label": str | None}
    assert str(inspect.signature(Point)).startswith("(x, y, label=None)")


def test_it_travels_by_pickle() -> None:
    assert pickle.loads(pickle.dumps(Point(1, 2, "home"))) == Point(1, 2, "home")
