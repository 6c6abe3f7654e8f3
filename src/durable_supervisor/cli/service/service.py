"""``service``: have the user's service manager run ``serve``."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Annotated, Final

from durable_supervisor.model.errors import ErrorCode, SupervisorError, invalid
from durable_supervisor.model.schema import schema_name

from ..main import called_name
from ..options.declared import Argument, Option, one_of
from ..options.shared import Call, Json, Settings, StateDir, settings
from ..output import exit_codes, out
from . import units
from .serve import ListenAt, check_values

_ACTIONS: Final = ("install", "uninstall", "print")

_Action = Annotated[
    str, Argument(metavar="ACTION", help="install, uninstall or print.", complete=one_of(*_ACTIONS))
]
_Serve = Annotated[
    list[str] | None, Argument(metavar="[SERVE_OPTION]...", help="After --: options of 'serve'.")
]
_Now = Annotated[bool, Option("--now", help="install: enable and start it; uninstall: stop it. Runs go on.")]
_DryRun = Annotated[bool, Option("--dry-run", help="Say what would be done; do nothing.")]
_Launchd = Annotated[bool, Option("--launchd", help="print: a property list for launchd.")]


@dataclass
class _Report:
    """What was done; ``next`` are the commands that remain."""

    action: str
    path: str
    changed: bool
    content: str | None = None
    ran: list[str] = field(default_factory=list)
    next: list[str] = field(default_factory=list)


def service(
    call: Call,
    action: _Action,
    serve_options: _Serve = None,
    now: _Now = False,
    dry_run: _DryRun = False,
    launchd: _Launchd = False,
    json: Json = False,
    state_dir: StateDir = None,
    socket: ListenAt = None,
) -> int:
    """Install, remove or print a systemd unit that runs 'serve'.

    Stopping, restarting and upgrading such a service harms no run. Without --now the
    service manager is not called, and the commands that remain are printed.

    \b
    Example:
      dsup service install --now
      dsup service print -- --max-concurrent-runs 8
    """
    from durable_supervisor.process.places import state_directory

    shared = settings(call, json, state_dir, socket)
    options = [*([] if shared.socket is None else ["--socket", os.path.abspath(shared.socket)])]
    options += serve_options or []
    for_root = _check(action, options, launchd=launchd)
    if action == "install" and not for_root and not shared.json:
        _warn_root()
    place = state_directory(shared.state_dir)
    path = units.user_unit_path(os.environ)
    if action == "print":
        report = _printed(place, options, path, launchd=launchd)
    elif action == "install":
        report = _install(units.systemd_unit(place, options), path, now=now, dry_run=dry_run)
    else:
        report = _uninstall(path, now=now, dry_run=dry_run)
    _show(shared, report, dry_run=dry_run)
    return exit_codes.OK


def _warn_root() -> None:
    if os.geteuid() == 0:
        out.note(
            "note: serve does not run as root unless told to: install it as an ordinary user, "
            f"or with `{called_name()} service install -- --allow-root`"
        )


def _check(action: str, options: list[str], *, launchd: bool) -> bool:
    """Raises what ``serve`` would.  Whether it may run as root."""
    if action not in _ACTIONS:
        raise invalid("action", f"must be one of {', '.join(_ACTIONS)}")
    if launchd and action != "print":
        raise invalid("launchd", "can only be printed: this product does not run on macOS yet")
    from ..by_typer import judge  # which says what is wrong, too: a unit that cannot start helps nobody

    values = judge("serve", options)
    check_values(values)
    return bool(values["allow_root"])


def _printed(place: str, options: list[str], path: str, *, launchd: bool) -> _Report:
    if launchd:
        out.note("note: this product does not run on macOS yet; the list shows how it will be started")
        path = f"~/Library/LaunchAgents/{units.LABEL}.plist"
    content = units.launchd_plist(place, options) if launchd else units.systemd_unit(place, options)
    return _Report("print", path, False, content)


def _install(content: str, path: str, *, now: bool, dry_run: bool) -> _Report:
    there = _ours(path)
    report = _Report("install", path, there != content, content if dry_run else None)
    if report.changed and not dry_run:
        _write(path, content)
    enable = [
        ["systemctl", "--user", "daemon-reload"],
        ["systemctl", "--user", "enable", "--now", units.NAME],
    ]
    _manage(report, enable, now=now and not dry_run)
    if not _lingers():
        report.next.append("loginctl enable-linger  # or it ends when you log out")
    return report


def _uninstall(path: str, *, now: bool, dry_run: bool) -> _Report:
    report = _Report("uninstall", path, _ours(path) is not None)
    if not report.changed:
        return report
    _manage(report, [["systemctl", "--user", "disable", "--now", units.NAME]], now=now and not dry_run)
    if not dry_run:
        os.unlink(path)
    _manage(report, [["systemctl", "--user", "daemon-reload"]], now=now and not dry_run)
    return report


def _ours(path: str) -> str | None:
    """What stands there; None for nothing.  Refuses a file that somebody else wrote."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            content = file.read()
    except FileNotFoundError:
        return None
    if not content.startswith(units.MARKER):
        raise invalid("unit", f"{path} was not written by this command", "move it away, or edit it yourself")
    return content


def _write(path: str, content: str) -> None:
    """Whole or not at all."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    temporary = f"{path}.{secrets.token_hex(4)}"
    try:
        with open(temporary, "x", encoding="utf-8") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.rename(temporary, path)
    except OSError:
        with suppress(OSError):  # not made at all, perhaps; what went wrong is the news
            os.unlink(temporary)
        raise


def _manage(report: _Report, commands: list[list[str]], *, now: bool) -> None:
    """Run the commands, or leave them to the caller."""
    for words in commands:
        if not now:
            report.next.append(" ".join(words))
            continue
        found = shutil.which(words[0])
        if found is None:
            raise _failed(words, "is not installed")
        done = subprocess.run([found, *words[1:]], capture_output=True, text=True, timeout=120, check=False)
        if done.returncode:
            raise _failed(words, done.stderr.strip().splitlines()[-1:] or [f"left with {done.returncode}"])
        report.ran.append(" ".join(words))


def _failed(words: list[str], why: str | list[str]) -> SupervisorError:
    return SupervisorError(
        ErrorCode.INTERNAL,
        f"{' '.join(words)}: {why if isinstance(why, str) else why[0]}",
        hint="the unit file is in place; call the service manager yourself, or use serve without one",
    )


def _lingers() -> bool:
    from ..doctor.service import lingers

    return lingers() is not False


def _show(shared: Settings, report: _Report, *, dry_run: bool) -> None:
    if shared.json:
        out.document({"schema": schema_name("service"), **asdict(report)})
        return
    if report.content is not None:
        out.write_text(report.content)
    if report.action == "print":
        return
    did = {"install": "wrote", "uninstall": "removed"}
    would = {"install": "would write", "uninstall": "would remove"}
    words = (would if dry_run else did)[report.action]
    out.note(f"{words if report.changed else 'unchanged:'} {report.path}")
    for done in report.ran:
        out.note(f"ran: {done}")
    for step in report.next:
        out.note(f"next: {step}")
