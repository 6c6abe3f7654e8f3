"""The files that make a service manager run ``serve``: a systemd unit, a launchd property list."""

from __future__ import annotations

import os
import plistlib
import sys
from collections.abc import Sequence
from typing import Final

NAME: Final = "durable-supervisor.service"
LABEL: Final = "durable-supervisor"
MARKER: Final = "# Written by `durable-supervisor service install`; `service uninstall` removes it."
_UNFIT: Final = frozenset("\"'\\")

_UNIT: Final = """\
{marker}
[Unit]
Description=durable-supervisor: programs that outlive whoever started them
# A wrong option is wrong again a second later.
StartLimitIntervalSec=60
StartLimitBurst=5

[Service]
Type=notify
# Programs live in this unit, too: they must not speak for it.
NotifyAccess=main
# The colon: no $ in a path is taken for a variable.
ExecStart=:{command}
# Lets each start report that a restart of this unit spares it.
Environment=DURABLE_SUPERVISOR_UNIT=%n
# Stop, restart and upgrade end this one process. Workers and programs go on, and the next finds them.
KillMode=process
# The control groups below this unit are left to us.
Delegate=yes
# A program that the kernel ends for its memory is no reason to end the service.
OOMPolicy=continue
# The default would bound all programs together.
TasksMax=infinity
Restart=on-failure
RestartSec=1
# Usage: see the log.
RestartPreventExitStatus=2
WatchdogSec=60
# Starts under way are finished first.
TimeoutStopSec=90

# Hardening. The service itself needs no privilege, no network and no more than its state directory. But
# what binds this process binds every program that it starts, so that a program would find another
# machine under the service than in your terminal. Take what yours can live with:
#NoNewPrivileges=yes        no sudo, no setuid programs; most lines below imply it in a user's unit
#RestrictSUIDSGID=yes       no making of setuid files
#LockPersonality=yes        no emulation of other architectures
#RestrictRealtime=yes       no real-time scheduling
#SystemCallArchitectures=native
#ProtectKernelTunables=yes  /proc/sys and /sys read-only; implies a mount namespace
#ProtectSystem=full         /usr and /etc read-only; implies a mount namespace
# Leave out in any case: PrivateTmp (another /tmp than yours), PrivateNetwork, ProtectHome,
# ProtectControlGroups (against Delegate), MemoryDenyWriteExecute (just-in-time compilers),
# RestrictNamespaces (what policies are held by: `durable-supervisor capabilities`).

[Install]
WantedBy=default.target
"""


def serve_command(state_dir: str, options: Sequence[str]) -> list[str]:
    """How this very installation is started, wherever its environment is."""
    # -P: a module in the working directory must not take the place of ours.
    return [sys.executable, "-P", "-m", "durable_supervisor.cli", "serve", "--state-dir", state_dir, *options]


def systemd_unit(state_dir: str, options: Sequence[str]) -> str:
    """The unit; see the comments in it."""
    words = serve_command(state_dir, options)
    if "--log-format" not in options:
        words += ["--log-format", "json"]
    if _UNFIT.intersection(words[0]):  # systemd refuses such a name of the executable, but not of an argument
        words.insert(0, "/usr/bin/env")
    return _UNIT.format(marker=MARKER, command=" ".join(quoted(word) for word in words))


def quoted(word: str) -> str:
    """A word of ExecStart= (systemd.service(5), "Command lines"; systemd.unit(5), "Specifiers")."""
    text = "".join(_escaped(byte) for byte in os.fsencode(word)).replace("%", "%%")
    return text if text and all(one.isalnum() or one in "/._-=:,@+%" for one in text) else f'"{text}"'


def _escaped(byte: int) -> str:
    if byte in b'"\\':
        return "\\" + chr(byte)
    return chr(byte) if 0x20 <= byte < 0x7F else f"\\x{byte:02x}"


def launchd_plist(state_dir: str, options: Sequence[str]) -> str:
    """For macOS, once this product runs there: launchd.plist(5)."""
    form = {
        "Label": LABEL,
        "ProgramArguments": serve_command(state_dir, options),
        "RunAtLoad": True,
        "KeepAlive": {"SuccessfulExit": False},
        "AbandonProcessGroup": True,  # what KillMode=process is to systemd
        "StandardErrorPath": os.path.join(state_dir, "service.log"),
    }
    return plistlib.dumps(form).decode()


def user_unit_path(environ: os._Environ[str] | dict[str, str]) -> str:
    """Where the user's service manager looks first for what the user has installed (systemd.unit(5))."""
    config = environ.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")
    return os.path.join(config, "systemd", "user", NAME)
