"""The doctor's look at the service: its socket, its unit, and what ends with a login session."""

from __future__ import annotations

import http.client
import json
import os
import pwd
import socket
import stat
from collections.abc import Iterator

from durable_supervisor import __version__
from durable_supervisor.client.locate import Place
from durable_supervisor.process.short_path import short_path
from durable_supervisor.supervisor.admission.host import UNIT_VARIABLE, service_of
from durable_supervisor.supervisor.state import state_dir
from durable_supervisor.supervisor.state.state_dir import StateDir

from .checks import Check

_ANSWER_SECONDS = 5.0  # one that lives may wait for a processor first
_LINGER = "/var/lib/systemd/linger"
_SPARE = "set KillMode=process and Delegate=yes in the unit (`durable-supervisor service print` shows one)"


def service_checks(place: StateDir) -> Iterator[Check]:
    """In the order to read them."""
    yield _socket(place)
    owner = state_dir.owner_pid(place)
    if owner is not None:
        yield _unit(owner)
    yield _lingering()


def _socket(place: StateDir) -> Check:
    path = Place.of(place.path, None).candidates()[0].path
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return Check("socket", "ok", "none: no service runs here; `durable-supervisor serve` is one")
    except OSError as error:
        return Check("socket", "note", f"{path}: {error.strerror}")
    if not stat.S_ISSOCK(status.st_mode):
        return Check("socket", "bad", f"{path} is no socket", "move it away: no service can listen there")
    shown = f"{path}, mode {stat.S_IMODE(status.st_mode):04o}"
    try:
        return _judged(shown, _ask(path))
    except ConnectionRefusedError:
        return Check("socket", "ok", f"{path} is a dead service's; the next one replaces it")
    except PermissionError:
        return Check(
            "socket", "note", f"{shown}: not for you", "ask its operator: serve --caller, --socket-mode"
        )
    except (OSError, ValueError, http.client.HTTPException) as error:
        what = "no answer" if isinstance(error, TimeoutError) else type(error).__name__
        hint = "the service may be stopped or overloaded: look at its log; ending it harms no run"
        return Check("socket", "bad", f"{shown}: {what} within {_ANSWER_SECONDS:g} s", hint)


def _judged(shown: str, info: dict[str, object]) -> Check:
    detail = f"{shown}: process {info.get('pid')}, version {info.get('version')}, {info.get('phase')}"
    if info.get("version") != __version__:
        hint = "restart the service to upgrade it; its runs go on"
        return Check("socket", "note", f"{detail}; this command is {__version__}", hint)
    return Check("socket", "ok", detail)


def _ask(path: str) -> dict[str, object]:
    """``GET /v1/info``, with the standard library alone: the doctor also comes where extras are missing."""
    folder, name = os.path.split(path)
    connection = http.client.HTTPConnection("localhost")
    try:
        with short_path(folder) as place, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as end:
            end.settimeout(_ANSWER_SECONDS)
            end.connect(f"{place}/{name}")
            connection.sock = end
            connection.request("GET", "/v1/info")
            form = json.loads(connection.getresponse().read())
    finally:
        connection.close()
    if not isinstance(form, dict) or "version" not in form:
        raise ValueError("not a service of ours")
    return form


def _unit(owner: int) -> Check:
    """Does a restart of the unit that the owner is in end the runs?"""
    try:
        with open(f"/proc/{owner}/cgroup", encoding="utf-8", errors="replace") as file:
            unit = service_of([line.rstrip("\n").split(":", 2)[2] for line in file])
    except (OSError, IndexError):
        return Check("unit", "note", f"of process {owner} cannot be read")
    if unit is None:
        return Check("unit", "ok", f"process {owner} belongs to no systemd service")
    if f"{UNIT_VARIABLE}={unit}" in _environment(owner):
        return Check("unit", "ok", f"{unit} spares the runs when it is restarted")
    return Check("unit", "note", f"runs share the systemd unit {unit}: its restart would end them", _SPARE)


def _environment(pid: int) -> list[str]:
    try:
        with open(f"/proc/{pid}/environ", encoding="utf-8", errors="replace") as file:
            return file.read().split("\0")
    except OSError:
        return []


def lingers() -> bool | None:
    """May processes of this user outlive its last login session?  None where no systemd-logind decides."""
    if not os.path.isdir("/run/systemd/system"):
        return None
    if os.geteuid() == 0:
        return True
    return os.path.exists(os.path.join(_LINGER, pwd.getpwuid(os.geteuid()).pw_name))


def _lingering() -> Check:
    lingering = lingers()
    if lingering is None:
        return Check("lingering", "ok", "no systemd here: nothing ends at logout")
    if lingering:
        return Check("lingering", "ok", "your services go on when you log out")
    detail = "your services end at logout, and where logind has KillUserProcesses=yes, the runs too"
    return Check("lingering", "note", detail, "loginctl enable-linger")
