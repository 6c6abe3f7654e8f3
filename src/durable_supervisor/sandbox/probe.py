"""Find out what this machine can enforce, by doing it: ``python -I -S -X utf8 probe.py``.

A process of its own, single-threaded and soon gone, so that what it tries (namespaces,
filters that cannot be taken off again) touches nobody.  One line of JSON for each probe, as soon as
it is done: one that hangs spoils only those after it.
"""

from __future__ import annotations

import os
import sys

# Name of each, in their order: its module in this package.
PROBES = {
    "privileges": "privileges",
    "seccomp": "calls.seccomp",
    "landlock": "files.landlock",
    "namespaces": "namespaces",
    "cgroups": "resources.cgroups",
    "bubblewrap": "files.bubblewrap",
}


def main() -> None:
    """Run every probe.  What raises has found nothing, and says why."""
    import json
    from importlib import import_module

    for name, module in PROBES.items():
        line: dict[str, object] = {"probe": name}
        try:
            line["found"] = import_module(f"durable_supervisor.sandbox.{module}").probe()
        except Exception as error:  # noqa: BLE001  whatever it is, it is no proof that the thing works
            line["failed"] = f"{type(error).__name__}: {error}"
        os.write(1, json.dumps(line).encode() + b"\n")


def _source_root() -> str:
    return os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


if __name__ == "__main__":
    sys.path.append(_source_root())
    main()
