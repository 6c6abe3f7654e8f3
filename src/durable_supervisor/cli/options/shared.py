"""Options that every verb shares, and where their values meet."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated, Any

from .declared import Argument, Option

if TYPE_CHECKING:
    from durable_supervisor.supervisor.workers.prestarted import PrestartedWorker

_DEFAULT_STATE_DIR = "~/.local/state/durable_supervisor"
STATE_DIR_VARIABLE = "DURABLE_SUPERVISOR_STATE_DIR"
SOCKET_VARIABLE = "DURABLE_SUPERVISOR_SOCKET"


class Settings:
    """The shared options as given so far; those after the verb win over those before it."""

    __slots__ = ("_socket", "json", "prestarted", "program", "state_dir")

    def __init__(self, program: str, prestarted: PrestartedWorker | None = None) -> None:
        self.prestarted = prestarted  # a worker that loads already, should this be a start
        self.program = program
        self.json = False
        self.state_dir: str | None = None  # then DURABLE_SUPERVISOR_STATE_DIR, then the default
        self._socket: str | None = None

    @property
    def socket(self) -> str | None:
        """The service's socket that everything goes over; None: the state directory is used.

        A ``--state-dir`` that was typed is nearer than a variable that was exported.
        """
        if self._socket is not None:
            return self._socket
        return (os.environ.get(SOCKET_VARIABLE) or None) if self.state_dir is None else None

    def merge(self, json: bool, state_dir: str | None, socket: str | None) -> Settings:
        """Take what was given here; an absent option changes nothing."""
        self.json = self.json or json
        if state_dir is not None:
            self.state_dir = state_dir
        if socket is not None:
            self._socket = socket
        return self


class Call:
    """One call of a verb: what all verbs share, and its own values by name."""

    __slots__ = ("params", "shared")

    def __init__(self, shared: Settings, params: dict[str, Any]) -> None:
        self.shared = shared
        self.params = params


def settings(call: Call, json: bool, state_dir: str | None, socket: str | None = None) -> Settings:
    """The one `Settings` of this call, with a verb's own words merged in."""
    return call.shared.merge(json, state_dir, socket)


def complete_run(state_dir: str | None, incomplete: str) -> list[tuple[str, str]]:
    """Ids of recent runs for the shell.  Silent on any trouble: a Tab must never print an error."""
    from ..opening.complete import run_ids

    return run_ids(state_dir, incomplete)


Json = Annotated[bool, Option("--json", help="Print JSON: one document, or one line per event.")]
StateDir = Annotated[
    str | None,
    Option(
        "--state-dir",
        metavar="DIR",
        help=f"The state directory [env: {STATE_DIR_VARIABLE}] [default: {_DEFAULT_STATE_DIR}].",
    ),
]
SocketPath = Annotated[
    str | None,
    Option(
        "--socket",
        metavar="PATH",
        help=f"Do it all over this socket of a service, and touch no file [env: {SOCKET_VARIABLE}].",
    ),
]
RunOrBundle = Annotated[
    str,
    Argument(
        metavar="RUN",
        help="Run id, a unique prefix of one, or a bundle (./nightly.zip).",
        complete=complete_run,
    ),
]
RunId = Annotated[
    str,
    Argument(metavar="RUN", help="Run id, or a unique prefix of one.", complete=complete_run),
]
After = Annotated[str, Option("--after", metavar="SEQ", help="Begin after this event.")]
Version = Annotated[bool, Option("--version", "-V", help="Print the version.")]
Raw = Annotated[bool, Option("--raw", help="Pass bytes on unescaped, also to a terminal.")]
Grace = Annotated[
    str | None,
    Option("--grace", metavar="TIME", help="Time between TERM and KILL, such as 5 or 500ms [default: 10s]."),
]
