"""The entry point: what must answer at once, then the rest."""

from __future__ import annotations

import os
import sys

PROGRAM = "durable-supervisor"
_VERSION_FLAGS = {"--version", "-V"}
# Net new objects between two looks for garbage.  Loading makes tens of thousands, and none of them is.
_GARBAGE_LOOK = 50_000
_MOMENT = 0.1  # seconds


def called_name() -> str:
    """The name it was called by, so that help, hints and completion say ``dsup`` to who typed it."""
    called = sys.argv[0].rpartition("/")[2]
    return called if called in (PROGRAM, "dsup") else PROGRAM


def main() -> None:
    """Run the command line and leave with its exit code (``exit_codes``)."""
    arguments = sys.argv[1:]
    if _VERSION_FLAGS.intersection(arguments[:2]) and set(arguments) <= {*_VERSION_FLAGS, "--json"}:
        _tell_version(as_json="--json" in arguments)  # before all imports, which cost more than the answer
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
    from .output.streams import prepare_streams

    prepare_streams()
    from .opening.prestart import speculative_worker

    prestarted = speculative_worker(arguments)
    from .app import run  # while the worker loads, on another processor

    return run(arguments, prestarted)


def _refuse(*, as_json: bool) -> int:
    import json

    from durable_supervisor.model.errors import SupervisorError
    from durable_supervisor.model.platform import check_platform

    from .output import exit_codes

    try:
        check_platform()
    except SupervisorError as error:
        plain = f"error: {error.code.value}: {error.message} ({error.hint})"
        sys.stderr.write((json.dumps({"error": error.to_dict()}) if as_json else plain) + "\n")
        return exit_codes.of_error(error.code)
    return exit_codes.FAILED


def _leave(code: int) -> None:
    """Exit without taking the interpreter apart, which takes as long as a bare one takes in all.

    What was opened is closed by now, and what was printed is written (`output.out` keeps nothing back).  Only
    where a thread still works is the interpreter left to wait for it.
    """
    try:
        for stream in (sys.stdout, sys.stderr):  # the version, or typer's help
            stream.flush()
    except (AttributeError, OSError, ValueError):  # no such stream; full; closed: its own end tells
        sys.exit(code)
    if _threads_end():
        os._exit(code)
    sys.exit(code)


def _threads_end() -> bool:
    """Have those ended that the interpreter would wait for?  A pool that was closed takes a moment."""
    threading = sys.modules.get("threading")
    if threading is None:
        return True
    others = [one for one in threading.enumerate() if one is not threading.main_thread() and not one.daemon]
    for thread in others:
        thread.join(_MOMENT)
    return not any(thread.is_alive() for thread in others)


def _tell_version(*, as_json: bool) -> None:
    try:
        os.write(1, version_line(as_json=as_json).encode())
    except OSError:  # full, closed, or nobody reads it: `app` tries again, and says so
        return
    _leave(0)


def version_line(*, as_json: bool) -> str:
    """What ``--version`` prints."""
    from durable_supervisor import __version__

    return f'{{"version": "{__version__}"}}\n' if as_json else f"{PROGRAM} {__version__}\n"
