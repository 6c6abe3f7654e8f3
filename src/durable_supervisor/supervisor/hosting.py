"""Facts about the process that embeds the supervisor, which a run inherits or depends on."""

from __future__ import annotations

import os
from functools import cache

from ..model.ids import RUN_ID_LENGTH
from .admission import Host

RUN_ID_VARIABLE = "DURABLE_SUPERVISOR_RUN_ID"


def read_host() -> Host:
    """Environment, directory, umask, and what surrounds this process."""
    outer = os.environ.get(RUN_ID_VARIABLE, "")
    nested = outer if len(outer) == RUN_ID_LENGTH and outer.isalnum() else None
    return Host(os.environ, os.getcwd(), read_umask(), nested, survives_unit_restart())


def read_umask() -> int:
    """Without changing it, which would race with the host's other threads (proc(5), ``Umask``)."""
    with open("/proc/self/status", encoding="utf-8", errors="replace") as file:
        for line in file:
            if line.startswith("Umask:"):
                return int(line.split()[1], 8)
    return 0o022


@cache
def survives_unit_restart() -> bool | None:
    """False inside a systemd service, whose restart ends everything in its cgroup (systemd.kill(5)).

    A service with ``KillMode=process`` spares the workers, but cannot be told apart
    from here.  None where cgroups cannot be read.
    """
    try:
        with open("/proc/self/cgroup", encoding="utf-8", errors="replace") as file:
            paths = [line.rstrip("\n").split(":", 2)[2] for line in file]
    except (OSError, IndexError):
        return None
    units = {part for path in paths for part in path.split("/") if part.endswith(".service")}
    # user@1000.service is the session manager itself, not a unit that is restarted.
    return not any(not unit.startswith("user@") for unit in units)
