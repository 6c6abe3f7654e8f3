"""Fields of a request by the options that a person gave for them.  Documents keep the fields' names."""

from __future__ import annotations

import re
from typing import Final

from durable_supervisor.model.errors import SupervisorError, default_hint

OPTIONS: Final = {
    "cwd": "--cwd",
    "env": "--env",
    "env_file": "--env-file",
    "secret_env": "--secret-env",
    "inherit_env": "--inherit-env",
    "stdin": "--stdin",
    "request_id": "--request-id",
    "labels": "--label",
    "completion": "--completion",
    "priority": "--priority",
    "lifetime": "--lifetime",
    "window": "--window",
    "pty.columns": "--size",
    "pty.rows": "--size",
    "size": "--size",
    "limits.timeout": "--timeout",
    "limits.idle_timeout": "--idle-timeout",
    "limits.grace": "--grace",
    "limits.max_output": "--max-output",
    "limits.max_stdout_bytes": "--max-output",
    "limits.max_stderr_bytes": "--max-output",
    "limits.on_limit": "--on-limit",
    "limits.max_stdin_bytes": "--max-stdin",
    "limits.max_memory_bytes": "--memory",
    "limits.max_cpu_seconds": "--cpu-time",
    "limits.max_cpus": "--cpus",
    "limits.max_processes": "--processes",
    "limits.max_open_files": "--open-files",
    "limits.max_file_bytes": "--file-size",
    "policy.network": "--network",
    "policy.filesystem": "--grant",
    "policy.enforcement": "--enforcement",
    "policy.files_backend": "--files-backend",
    # Of the other verbs.
    "after": "--after",
    "before": "--before",
    "detach-key": "--detach-key",
    "from": "--from",
    "grace": "--grace",
    "launchd": "--launchd",
    "log-format": "--log-format",
    "log-level": "--log-level",
    "max-concurrent-runs": "--max-concurrent-runs",
    "max-connections": "--max-connections",
    "max-queued-runs": "--max-queued-runs",
    "max-runs-per-owner": "--max-runs-per-owner",
    "socket-mode": "--socket-mode",
    "keep": "--keep",
    "kind": "--kind",
    "label": "--label",
    "limit": "--limit",
    "max_bytes": "--max-size",
    "max_size": "--max-size",
    "older_than": "--older-than",
    "output": "--output",
    "secrets_file": "--secrets-file",
    "speed": "--speed",
    "state": "--state",
    "stream": "--stream",
    "tail": "--tail",
    "timeout": "--timeout",
}


# Hints to who writes Python, in words of the command line.
HINTS: Final = {
    "give grants, or []": "give --grant",
    "who acknowledges and who is waited for are one": "give --lifetime scope, too",
    "Terminal(columns=120, rows=40)": "--size 120x40",
}
_SIZES: Final = ("--max-output", "--max-stdin", "--memory", "--file-size", "--max-size")


def by_option(error: SupervisorError) -> tuple[str, str]:
    """Message and hint, with the option in the place of the field."""
    named = str(error.details.get("field", ""))
    field = named.partition("[")[0]
    option = OPTIONS.get(field)
    # The default one is for who has made a request by program.
    hint = "see --help" if error.hint == default_hint(named) else error.hint
    if option is None:
        return error.message, hint
    message = re.sub(rf"^{re.escape(field)}\b", option, error.message)
    if option in _SIZES:
        return message, "a number alone is bytes; with K, M, G or T it is more, as in 64M"
    return message, HINTS.get(hint, re.sub(rf"(?<![\w-]){re.escape(field)}\b", option, hint))
