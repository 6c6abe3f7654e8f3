"""The program's environment: a small base, never the whole of the host's."""

from __future__ import annotations

from collections.abc import Mapping

from .command import Command

# Taken from the host where it has them.  Nothing else comes over unless named.
BASE_NAMES = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR")
DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def inherited_names(command: Command) -> tuple[str, ...]:
    """Which of the host's variables a program is given, where it has them."""
    return (*BASE_NAMES, *command.inherit_env)


def program_environment(command: Command, host: Mapping[str, str]) -> dict[str, str]:
    """Base, the terminal's kind, inherited names, ``env``, ``secret_env``, in this order.

    What the host lacks is left out.
    """
    env = {name: host[name] for name in BASE_NAMES if name in host}
    env.setdefault("PATH", DEFAULT_PATH)
    if command.pty is not None:
        env["TERM"] = command.pty.term
    env.update({name: host[name] for name in command.inherit_env if name in host})
    env.update(command.env)
    env.update(command.secret_env)
    return env
