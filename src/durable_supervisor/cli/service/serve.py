"""``serve``: the service, in the foreground, until a signal ends it."""

from __future__ import annotations

import faulthandler
import gc
import os
import re
import shlex
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any

from durable_supervisor.model.errors import Phase, SupervisorError, invalid
from durable_supervisor.model.schema import schema_name
from durable_supervisor.process.places import SOCKET_VARIABLE

from ..opening.session import drive
from ..options import parse
from ..options.declared import Option
from ..options.shared import Call, Json, Settings, StateDir, settings
from ..output import exit_codes, out

if TYPE_CHECKING:
    from durable_supervisor.server.daemon.life import Ready, ServeOptions

_GARBAGE_LOOK = 10_000  # `main` has it higher, to begin sooner; who stays should not grow for it

ListenAt = Annotated[
    str | None,
    Option(
        "--socket",
        metavar="PATH",
        help=f"Listen there instead of in the state directory [env: {SOCKET_VARIABLE}].",
    ),
]
_Mode = Annotated[str, Option("--socket-mode", metavar="MODE", help="Permissions of the socket, in octal.")]
_Group = Annotated[
    str | None, Option("--socket-group", metavar="GROUP", help="Group that the socket belongs to.")
]
_Caller = Annotated[
    list[str] | None,
    Option(
        "--caller",
        metavar="UID:PRINCIPAL:OWNER:NAMESPACE",
        help="Admit another user; a principal named operator sees all runs. Repeatable.",
    ),
]
_Concurrent = Annotated[
    str | None, Option("--max-concurrent-runs", metavar="N", help="More are refused, or wait.")
]
_PerOwner = Annotated[
    str | None, Option("--max-runs-per-owner", metavar="N", help="The same, for each owner.")
]
_Queued = Annotated[str, Option("--max-queued-runs", metavar="N", help="How many may wait.")]
_Connections = Annotated[
    str, Option("--max-connections", metavar="N", help="Beyond it an idle one makes room.")
]
_Root = Annotated[bool, Option("--allow-root", help="Run as root, and every program with it.")]
_StopRuns = Annotated[
    bool, Option("--stop-runs-on-exit", help="On TERM and INT stop all runs too. Default: they go on.")
]
_Level = Annotated[
    str,
    Option("--log-level", metavar="LEVEL", help="debug (with every request), info, warning, error."),
]
_Format = Annotated[
    str | None,
    Option("--log-format", metavar="FORMAT", help="json or text [default: text on a terminal, else json]."),
]


def serve(
    call: Call,
    socket_mode: _Mode = "0600",
    socket_group: _Group = None,
    caller: _Caller = None,
    max_concurrent_runs: _Concurrent = None,
    max_runs_per_owner: _PerOwner = None,
    max_queued_runs: _Queued = "64",
    max_connections: _Connections = "512",
    allow_root: _Root = False,
    stop_runs_on_exit: _StopRuns = False,
    log_level: _Level = "info",
    log_format: _Format = None,
    json: Json = False,
    state_dir: StateDir = None,
    socket: ListenAt = None,
) -> int:
    """Own the state directory and serve it over a Unix socket.

    On TERM or Ctrl-C it drains: starts under way are finished, new ones refused, and no run is harmed.
    Clients find the socket from the state directory, also with --socket. The log goes to
    stderr. --json prints one document on stdout once clients may come.

    \b
    Example:
      dsup serve
      dsup serve --max-concurrent-runs 8 --log-format json 2>> dsup.log
      dsup serve --socket /run/agents/dsup.sock --socket-mode 0660 --socket-group agents \\
        --caller 1001:ci:ci:default
      curl --unix-socket ~/.local/state/durable_supervisor/supervisor.sock http://localhost/v1/info
    """
    shared = settings(call, json, state_dir, socket)
    _check_installed()
    return _serve(shared, _options(shared, call.params), log_level, log_format)


def _options(shared: Settings, words: Mapping[str, Any]) -> ServeOptions:
    """From the options by name.  Raises INVALID_REQUEST."""
    from durable_supervisor.server.daemon.life import ServeOptions
    from durable_supervisor.server.requests.peers import Caller

    return ServeOptions(
        state_dir=shared.state_dir,
        socket=None if shared.socket is None else os.path.abspath(shared.socket),
        socket_mode=_mode(words["socket_mode"]),
        socket_group=words["socket_group"],
        callers=[Caller.parse(text) for text in words["caller"] or ()],
        max_concurrent_runs=_limit("max-concurrent-runs", words["max_concurrent_runs"]),
        max_runs_per_owner=_limit("max-runs-per-owner", words["max_runs_per_owner"]),
        max_queued_runs=parse.whole("max-queued-runs", words["max_queued_runs"]),
        max_connections=parse.whole("max-connections", words["max_connections"]),
        allow_root=words["allow_root"],
        stop_runs_on_exit=words["stop_runs_on_exit"],
    )


def _serve(shared: Settings, options: ServeOptions, level: str, form: str | None) -> int:
    from durable_supervisor.server.daemon import logs
    from durable_supervisor.server.daemon.life import Daemon
    from durable_supervisor.server.daemon.notify import Notifier

    form = form or ("text" if out.is_terminal(out.STDERR) else "json")
    for name, value, allowed in (("log-level", level, logs.LEVELS), ("log-format", form, logs.FORMATS)):
        if value not in allowed:
            raise invalid(name, f"must be one of {', '.join(allowed)}")
    log = logs.ServiceLog(level, form)

    def leave_now(code: int) -> None:
        log.stop()
        os._exit(code)

    async def work() -> int:
        notifier = Notifier(os.environ, os.getpid())
        daemon = Daemon(options, notifier, lambda ready: _tell(shared, ready), leave_now)
        return exit_codes.OK if await daemon.run() else exit_codes.FAILED

    log.start()
    gc.set_threshold(_GARBAGE_LOOK)
    # A watchdog's SIGABRT leaves behind where it hung: files and lines, no values.  By number: where
    # it was started without one, Python has no sys.stderr.
    faulthandler.enable(out.STDERR)
    try:
        return drive(work())
    finally:
        log.stop()


def _tell(shared: Settings, ready: Ready) -> None:
    """A reader of stdout that is gone is no reason not to serve."""
    with suppress(OSError, SupervisorError):
        if shared.json:
            out.document({"schema": schema_name("serve"), **ready.to_dict()})
        elif out.is_terminal(out.STDOUT):
            socket = shlex.quote(ready.socket)
            out.line(f"listening; try: curl --unix-socket {socket} http://localhost/v1/info (Ctrl-C drains)")


def _check_installed() -> None:
    from importlib.util import find_spec

    missing = [name for name in ("aiohttp", "prometheus_client") if find_spec(name) is None]
    if missing:
        from durable_supervisor.model.extras import extra_missing

        raise extra_missing("the service", missing[0], "daemon", Phase.VALIDATE)


def check_values(given: Mapping[str, Any]) -> None:
    """Raises for a mode or a number that ``serve`` would not take, for whoever writes its options down."""
    _mode(given["socket_mode"])
    _limit("max-concurrent-runs", given["max_concurrent_runs"])
    _limit("max-runs-per-owner", given["max_runs_per_owner"])
    parse.whole("max-queued-runs", given["max_queued_runs"])
    parse.whole("max-connections", given["max_connections"])


def _limit(option: str, text: str | None) -> int | None:
    return None if text is None else parse.whole(option, text, least=1)


def _mode(text: str) -> int:
    if not re.fullmatch(r"0?o?[0-7]{3}", text):
        raise invalid("socket-mode", "is no permission in octal", "give one such as 0600 or 0660")
    return int(text[-3:], 8)
