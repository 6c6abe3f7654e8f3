"""The entry point: what must answer at once, then the rest."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # not from typing, which takes longer than the version does
if TYPE_CHECKING:
    from typing import Any

PROGRAM = "durable-supervisor"
_VERSION_FLAGS = {"--version", "-V"}
# Net new objects between two looks for garbage.  Loading makes tens of thousands, and none of them is.
_GARBAGE_LOOK = 50_000


def called_name() -> str:
    """The name it was called by, so that help, hints and completion say ``dsup`` to who typed it."""
    called = sys.argv[0].rpartition("/")[2]
    return called if called in (PROGRAM, "dsup") else PROGRAM


def main() -> None:
    """Run the command line and leave with its exit code (``exit_codes``)."""
    arguments = sys.argv[1:]
    if _VERSION_FLAGS.intersection(arguments[:2]) and set(arguments) <= {*_VERSION_FLAGS, "--json"}:
        _print_version(as_json="--json" in arguments)  # before all imports, which cost more than the answer
        _leave(0)
    import gc
    import signal

    gc.set_threshold(_GARBAGE_LOOK)
    try:
        code = _run(arguments)
    except KeyboardInterrupt:  # while modules were still being loaded
        code = 130  # exit_codes.INTERRUPTED; nothing more is imported now
    # A second Ctrl-C finds the interpreter waiting for its threads: no traceback, and no waiting.
    signal.signal(signal.SIGINT, lambda *_: os._exit(code))
    _leave(code)


def _run(arguments: list[str]) -> int:
    if sys.platform == "win32":  # most of what is to be imported is not there
        return _refuse(as_json="--json" in arguments)
    from .app import run

    return run(arguments)


def _refuse(*, as_json: bool) -> int:
    import json

    from durable_supervisor.model.errors import SupervisorError
    from durable_supervisor.model.platform import check_platform

    from . import exit_codes

    try:
        check_platform()
    except SupervisorError as error:
        plain = f"error: {error.code.value}: {error.message} ({error.hint})"
        sys.stderr.write((json.dumps({"error": error.to_dict()}) if as_json else plain) + "\n")
        return exit_codes.of_error(error.code)
    return exit_codes.FAILED


def _leave(code: int) -> None:
    """Exit without taking the interpreter apart, which takes as long as a bare one takes in all.

    What was opened is closed by now, and what was printed is written (`out` keeps nothing back).  Only
    where a thread still works is the interpreter left to wait for it.
    """
    try:
        for stream in (sys.stdout, sys.stderr):  # the version, or typer's help
            stream.flush()
    except (AttributeError, OSError, ValueError):  # no such stream; full; closed: its own end tells
        sys.exit(code)
    threading = sys.modules.get("threading")
    if threading is not None and any(not one.daemon for one in _others(threading)):
        sys.exit(code)
    os._exit(code)


def _others(threading: Any) -> list[Any]:
    return [one for one in threading.enumerate() if one is not threading.main_thread()]


def _print_version(*, as_json: bool) -> None:
    from durable_supervisor import __version__

    sys.stdout.write(f'{{"version": "{__version__}"}}\n' if as_json else f"{PROGRAM} {__version__}\n")
