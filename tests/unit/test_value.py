"""Values of the public face: what is said of a frozen dataclass with keyword fields holds of them."""

from __future__ import annotations

import copy
import inspect
import pickle
import sys

import pytest

from durable_supervisor import Command, Limits, SupervisorError


def test_equal_by_their_fields() -> None:
    assert Limits(timeout=5) == Limits(timeout=5.0) != Limits(timeout=6)
    assert hash(Limits(timeout=5)) == hash(Limits(timeout=5.0))
    assert Command(argv=["true"]) == Command(argv=("true",))
    assert Limits() != Command(argv=["true"])


def test_they_do_not_change() -> None:
    limits = Limits(grace=1)
    with pytest.raises(AttributeError, match="grace"):
        limits.grace = 2  # type: ignore[misc]
    with pytest.raises(AttributeError, match="grace"):
        del limits.grace
    assert limits == Limits(grace=1)


def test_a_changed_copy_is_checked_anew() -> None:
    limits = Limits(timeout=5, grace=1)
    assert limits.replace(timeout=6) == Limits(timeout=6, grace=1)
    assert limits == Limits(timeout=5, grace=1)
    with pytest.raises(SupervisorError, match="timeout"):
        limits.replace(timeout=-1)
    if sys.version_info >= (3, 13):
        assert copy.replace(limits, timeout=6) == limits.replace(timeout=6)


@pytest.mark.parametrize("value", [Limits(timeout=5), Command(argv=["true"], env={"A": "b"}, stdin=b"x")])
def test_they_can_be_sent_and_copied(value: object) -> None:
    assert pickle.loads(pickle.dumps(value)) == value
    assert copy.copy(value) == value
    assert copy.deepcopy(value) == value


def test_a_slip_is_a_type_error() -> None:
    with pytest.raises(TypeError, match=r"Limits\(\).*'timout'"):
        Limits(timout=5)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"Command\(\).*'argv'"):
        Command()  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        Limits(5)  # type: ignore[call-arg]


def test_they_show_their_fields() -> None:
    assert repr(Limits(timeout=5)).startswith("Limits(timeout=5.0, idle_timeout=None, grace=10.0,")
    shown = repr(Command(argv=["true"], env={"A": "hidden"}, secret_env={"B": "hidden-too"}))
    assert shown.startswith("Command(argv=('true',), cwd=None, env=['A'],")
    assert "hidden" not in shown


def test_their_fields_can_be_asked_for() -> None:
    names = list(inspect.signature(Limits).parameters)
    assert names == list(Limits.FIELDS)
    assert inspect.signature(Command).parameters["argv"].default is inspect.Parameter.empty
    assert inspect.signature(Limits).parameters["grace"].default == 10.0
