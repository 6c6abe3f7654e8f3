"""The entry point: what must answer at once, then the rest."""

from __future__ import annotations

import sys

PROGRAM = "durable-supervisor"
_VERSION_FLAGS = {"--version", "-V"}


def called_name() -> str:
    """The name it was called by, so that help, hints and completion say ``dsup`` to who typed it."""
    called = sys.argv[0].rpartition("/")[2]
    return called if called in (PROGRAM, "dsup") else PROGRAM


def main() -> None:
    """Run the command line and leave with its exit code (``exit_codes``)."""
    arguments = sys.argv[1:]
    if _VERSION_FLAGS.intersection(arguments[:2]) and set(arguments) <= {*_VERSION_FLAGS, "--json"}:
        _print_version(as_json="--json" in arguments)  # before typer, which costs more than the answer
        return
    try:
        from .app import run

        code = run(arguments)
    except KeyboardInterrupt:  # while modules were still being loaded
        code = 130  # exit_codes.INTERRUPTED; nothing more is imported now
    sys.exit(code)


def _print_version(*, as_json: bool) -> None:
    from durable_supervisor import __version__

    sys.stdout.write(f'{{"version": "{__version__}"}}\n' if as_json else f"{PROGRAM} {__version__}\n")
