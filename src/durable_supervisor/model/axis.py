"""What a result says of one axis of its confinement.  No worker loads this: see `enforcement`."""

# Annotations as they are: as strings they would hide NotRequired from `AxisReport.__required_keys__`.
from typing import Literal, NotRequired, TypedDict


class AxisReport(TypedDict):
    """What was asked for, what was applied, by which mechanism, and why that is less where it is.

    ``requested`` is None where nothing was.  ``oom_kills``: of ``memory``, by a group: the kernel's count.
    """

    requested: object
    applied: Literal["full", "partial", "none"]
    mechanism: str | None
    reason: str | None
    oom_kills: NotRequired[int]
