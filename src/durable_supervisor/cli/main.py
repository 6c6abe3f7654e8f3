"""The entry point: what must answer at once, then the rest."""

from __future__ import annotations

import sys

PROGRAM = "durable-supervisor"
_VERSION_FLAGS = {"--version", "-V"}


def main() -> None:
    """Run the command line and leave with its exit code (``exit_codes``)."""
    arguments = sys.argv[1:]
    if _VERSION_FLAGS.intersection(arguments[:2]) and set(arguments) <= {*_VERSION_FLAGS, "--json"}:
        _print_version(as_json="--json" in arguments)  # before typer, which costs more than the answer
        return
    from .app import run

    sys.exit(run(arguments))


def _print_version(*, as_json: bool) -> None:
    from durable_supervisor import __version__

    sys.stdout.write(f'{{"version": "{__version__}"}}\n' if as_json else f"{PROGRAM} {__version__}\n")
