"""From the words of a command line to its exit code."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from . import verbs
from .main import PROGRAM, called_name, version_line
from .options import words
from .options.shared import Call, Settings
from .output import exit_codes, streams

if TYPE_CHECKING:
    from durable_supervisor.supervisor.workers.prestarted import PrestartedWorker


def run(arguments: list[str], prestarted: PrestartedWorker | None = None) -> int:
    """Run one command line.  Returns the exit code; never raises but for SystemExit of typer's own.

    ``prestarted``: a worker that loads already, should this turn out to be a start.
    """
    shared = Settings(PROGRAM, prestarted)
    try:
        code = None if _completes() else _invoke_plain(arguments, shared)
        return _invoke_by_typer(arguments, shared) if code is None else code
    except KeyboardInterrupt:
        return exit_codes.INTERRUPTED
    except BrokenPipeError:
        streams.close_quietly()
        return exit_codes.BROKEN_PIPE
    except Exception as error:  # noqa: BLE001  the guard: a person gets one line, never a traceback
        from .output import errors  # here and below: a start that goes well needs none of these

        return errors.report(error, as_json=_as_json(shared, arguments))


def _invoke_plain(arguments: list[str], shared: Settings) -> int | None:
    """The usual case, which needs no typer.  None: it is another one, and nothing was done."""
    before = words.parse(verbs.shared, arguments, interspersed=False)
    if before is None:
        return None
    values, rest = before
    if values["version"]:
        from .output import out

        out.write_text(version_line(as_json=shared.json or values["json"]))
        return exit_codes.OK
    if not rest or rest[0] not in verbs.VERBS:
        return None
    verb, *rest = rest
    if verb != "serve":  # whose HTTP server insists on it
        _go_without_tls()
    function = verbs.load(verb)
    after = words.parse(function, rest, interspersed=verbs.interspersed(verb))
    if after is None or after[1]:
        return None
    verbs.shared(Call(shared, values), **values)
    return function(Call(shared, after[0]), **after[0])


def _invoke_by_typer(arguments: list[str], shared: Settings) -> int:
    from contextlib import redirect_stdout

    from . import by_typer
    from .output import errors, out

    try:
        with redirect_stdout(out.Direct()):
            return by_typer.invoke(arguments, shared)
    except Exception as error:
        if by_typer.is_abort(error):
            return exit_codes.INTERRUPTED
        mistake = by_typer.mistake(error)
        if mistake is None:
            raise
        message, command, code = mistake
        errors.print_error(errors.usage(message, command), as_json=_as_json(shared, arguments))
        return code


def _go_without_tls() -> None:
    """asyncio does without it, as in a Python that was built so, and nothing here speaks it.

    To load OpenSSL takes half as long as a bare interpreter takes in all.
    """
    sys.modules.setdefault("ssl", None)  # type: ignore[arg-type]  # None: not to be had


def _completes() -> bool:
    """Does a shell ask what could come next?  (The variable is typer's.)"""
    return f"_{called_name().replace('-', '_').upper()}_COMPLETE" in os.environ


def _as_json(shared: Settings, arguments: list[str]) -> bool:
    # A mistake in the words is found before the options are merged, so look at the words themselves.
    given = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return shared.json or "--json" in given
