"""The program's environment: a small base, never the whole of the host's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .command import Command

# Taken from the host where it has them.  Nothing else comes over unless named.
BASE_NAMES = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR")
DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def program_environment(command: Command, host: Mapping[str, str]) -> dict[str, str]:
    """Base, the terminal's kind, inherited names, ``env``, ``secret_env``, in this order.

    What the host lacks is left out.
    """
    env = _found(BASE_NAMES, host)
    env.setdefault("PATH", DEFAULT_PATH)
    if command.pty is not None:
        env["TERM"] = command.pty.term
    env.update(_found(command.inherit_env, host))
    env.update(command.env)
    env.update(command.secret_env)
    return env


def _found(names: Sequence[str], host: Mapping[str, str]) -> dict[str, str]:
    # Each is asked for once: `os.environ` translates a name, and what it finds, at every look.
    return {name: value for name in names if (value := host.get(name)) is not None}
