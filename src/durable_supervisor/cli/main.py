"""The entry point: what must answer at once, then the rest."""

from __future__ import annotations

import gc
import json
import os
import signal
import sys

from durable_supervisor.model.errors import ErrorCode, SupervisorError
from durable_supervisor.model.platform import check_platform

PROGRAM = "durable-supervisor"
_VERSION_FLAGS = {"--version", "-V"}
# Net new objects between two looks for garbage.  Loading makes tens of thousands, and none of them is.
_GARBAGE_LOOK = 10_000


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
    gc.set_threshold(_GARBAGE_LOOK)
    try:
        code = _run(arguments)
    except KeyboardInterrupt:  # while modules were still being loaded
        code = 130  # exit_codes.INTERRUPTED; nothing more is imported now
    # A second Ctrl-C finds the interpreter waiting for its threads: no traceback, and no waiting.
    signal.signal(signal.SIGINT, lambda *_: os._exit(code))
    gc.freeze()  # the interpreter would look through everything twice more, just before it is gone
    sys.exit(code)


def _run(arguments: list[str]) -> int:
    """What cannot even be imported is told in one line too."""
    try:
        if sys.platform == "win32":
            check_platform()
        from .app import run
    except SupervisorError as error:
        return _refuse(error, as_json="--json" in arguments)
    except ModuleNotFoundError as error:
        if error.name != "typer":
            raise
        missing = SupervisorError(
            ErrorCode.INTERNAL,
            "the command line needs typer and rich, which are not installed",
            hint="install the extra: durable-supervisor[cli]",
        )
        return _refuse(missing, as_json="--json" in arguments)
    return run(arguments)


def _refuse(error: SupervisorError, *, as_json: bool) -> int:
    from . import exit_codes  # `errors`, which prints all others, needs what is not there

    plain = f"error: {error.code.value}: {error.message} ({error.hint})"
    sys.stderr.write((json.dumps({"error": error.to_dict()}) if as_json else plain) + "\n")
    return exit_codes.of_error(error.code)


def _print_version(*, as_json: bool) -> None:
    from durable_supervisor import __version__

    sys.stdout.write(f'{{"version": "{__version__}"}}\n' if as_json else f"{PROGRAM} {__version__}\n")
