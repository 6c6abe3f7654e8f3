"""Options that every verb shares, and where their values meet."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Annotated

import typer

_DEFAULT_STATE_DIR = "~/.local/state/durable_supervisor"
STATE_DIR_VARIABLE = "DURABLE_SUPERVISOR_STATE_DIR"
SOCKET_VARIABLE = "DURABLE_SUPERVISOR_SOCKET"


class Settings:
    """The shared options as given so far; those after the verb win over those before it."""

    __slots__ = ("_socket", "json", "program", "state_dir")

    def __init__(self, program: str) -> None:
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


def settings(
    context: typer.Context, json: bool, state_dir: str | None, socket: str | None = None
) -> Settings:
    """The one `Settings` of this call, with a verb's own words merged in."""
    found = context.find_object(Settings)
    if found is None:
        raise RuntimeError("app.run() puts the settings into the context")
    return found.merge(json, state_dir, socket)


def complete_run(context: typer.Context, args: list[str], incomplete: str) -> list[tuple[str, str]]:
    """Ids of recent runs for the shell.  Silent on any trouble: a Tab must never print an error."""
    from .complete import run_ids

    found = context.find_object(Settings)
    state_dir = context.params.get("state_dir") or (found.state_dir if found else None)
    return run_ids(state_dir, incomplete)


def one_of(*words: str) -> Callable[[str], list[str]]:
    """Completes an option that takes one of these."""

    def complete(incomplete: str) -> list[str]:
        return [word for word in words if word.startswith(incomplete)]

    return complete


Json = Annotated[bool, typer.Option("--json", help="Print JSON: one document, or one line per event.")]
StateDir = Annotated[
    str | None,
    typer.Option(
        "--state-dir",
        metavar="DIR",
        help=f"The state directory [env: {STATE_DIR_VARIABLE}] [default: {_DEFAULT_STATE_DIR}].",
    ),
]
SocketPath = Annotated[
    str | None,
    typer.Option(
        "--socket",
        metavar="PATH",
        help=f"Do it all over this socket of a service, and touch no file [env: {SOCKET_VARIABLE}].",
    ),
]
RunOrBundle = Annotated[
    str,
    typer.Argument(
        metavar="RUN",
        help="Run id, a unique prefix of one, or a bundle (./nightly.zip).",
        autocompletion=complete_run,
    ),
]
RunId = Annotated[
    str,
    typer.Argument(metavar="RUN", help="Run id, or a unique prefix of one.", autocompletion=complete_run),
]
After = Annotated[str, typer.Option("--after", metavar="SEQ", help="Begin after this event.")]
Raw = Annotated[bool, typer.Option("--raw", help="Pass bytes on unescaped, also to a terminal.")]
Grace = Annotated[
    str | None,
    typer.Option(
        "--grace", metavar="TIME", help="Time between TERM and KILL, such as 5 or 500ms [default: 10s]."
    ),
]
