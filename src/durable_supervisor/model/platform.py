"""Where the guarantees can be kept at all.  Imports nothing, so that it can be asked before anything else."""

from __future__ import annotations

import sys

from .errors import ErrorCode, Phase, SupervisorError


def check_platform(platform: str = sys.platform) -> None:
    """Raises ``UNSUPPORTED_PLATFORM`` where identities, locks and trees cannot be proven."""
    if platform != "linux":
        raise SupervisorError(
            ErrorCode.UNSUPPORTED_PLATFORM,
            f"durable_supervisor needs Linux (this is {platform}): it relies on /proc, pidfds and OFD locks",
            phase=Phase.OPEN,
            hint="run it on Linux, in a container or a virtual machine",
        )
