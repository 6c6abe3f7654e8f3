"""Fields of a request by the options that a person gave for them.  Documents keep the fields' names."""

from __future__ import annotations

from typing import Final

from durable_supervisor.model.errors import SupervisorError

# Where the two differ in more than dashes.
OPTIONS: Final = {
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
}


def by_option(error: SupervisorError) -> tuple[str, str]:
    """Message and hint, with the option in the place of the field."""
    field = str(error.details.get("field", "")).partition("[")[0]
    option = OPTIONS.get(field)
    if option is None:
        return error.message, error.hint
    return error.message.replace(field, option), error.hint.replace(field, option)
