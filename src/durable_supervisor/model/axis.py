"""What readers are told of the axes of a confinement.  No worker loads this: see `enforcement`."""

# Annotations as they are: as strings they would hide NotRequired from `AxisReport.__required_keys__`.
from collections.abc import Mapping
from typing import Any, Literal, NotRequired, TypedDict

from .enforcement import AXES, axis_report


class AxisReport(TypedDict):
    """What was asked for, what was applied, by which mechanism, and why that is less where it is.

    ``requested`` is None where nothing was.  ``oom_kills``: of ``memory``, by a group: the kernel's count.
    """

    requested: object
    applied: Literal["full", "partial", "none"]
    mechanism: str | None
    reason: str | None
    oom_kills: NotRequired[int]


def all_axes(report: Mapping[str, Any] | None) -> dict[str, Any]:
    """The whole report: of an axis that a log leaves out, nothing was asked.  Empty where there is none."""
    return {**{axis: axis_report(None) for axis in AXES}, **report} if report else {}
