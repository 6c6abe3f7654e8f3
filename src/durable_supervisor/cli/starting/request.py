"""The options of ``start`` and ``run``, and the request that they make.

The options have one name here and in the two verbs; `ask` takes them by that name.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from durable_supervisor.model.command import Command, Completion, Limits, OnLimit
from durable_supervisor.model.errors import invalid
from durable_supervisor.model.ids import new_id
from durable_supervisor.model.request import Lifetime, Queueing, StartRequest

from ..options import parse
from ..options.declared import Argument, Option, one_of
from . import confined

if TYPE_CHECKING:
    from durable_supervisor.model.terminal import Terminal

Argv = Annotated[
    list[str],
    Argument(metavar="PROGRAM", help="The program and its arguments, best after a --; no shell."),
]
RequestId = Annotated[
    str | None,
    Option("--request-id", metavar="ID", help="Idempotency key: the same id never runs twice."),
]
Cwd = Annotated[str | None, Option("--cwd", metavar="DIR", help="Working directory [default: ours].")]
Env = Annotated[
    list[str] | None, Option("--env", "-e", metavar="NAME=VALUE", help="A variable; may be repeated.")
]
EnvFile = Annotated[
    list[str] | None,
    Option("--env-file", metavar="FILE", help="NAME=VALUE lines; --env wins over them."),
]
SecretEnv = Annotated[
    list[str] | None,
    Option(
        "--secret-env",
        metavar="NAME[=VALUE]",
        help="A variable whose value never reaches the disk. NAME alone takes the value from our own"
        " environment; NAME=VALUE shows it to everyone who can run ps.",
    ),
]
InheritEnv = Annotated[
    list[str] | None,
    Option(
        "--inherit-env",
        metavar="NAME",
        help="Hand on this variable of ours; may be repeated. Of itself a program gets PATH, HOME, LANG and a"
        " few more, not all of our environment.",
    ),
]
Stdin = Annotated[
    str | None,
    Option(
        "--stdin",
        metavar="FILE|-|open",
        help="A file's bytes, or our stdin's (-), or 'open' for later write-stdin [default: empty].",
    ),
]
Pty = Annotated[
    bool,
    Option("--pty", help="A terminal instead of pipes; 'attach' then is as if you sat at it."),
]
Size = Annotated[
    str | None,
    Option("--size", metavar="COLUMNSxROWS", help="The terminal's size [default: ours, or 80x24]."),
]
Term = Annotated[
    str | None,
    Option("--term", metavar="NAME", help="The terminal's kind [default: ours, or xterm-256color]."),
]
Timeout = Annotated[
    str | None,
    Option("--timeout", metavar="TIME", help="Longest wall time, such as 600, 10m, 2h [default: none]."),
]
IdleTimeout = Annotated[
    str | None,
    Option("--idle-timeout", metavar="TIME", help="Longest time without any output [default: none]."),
]
MaxOutput = Annotated[
    str | None,
    Option("--max-output", metavar="SIZE", help="Output kept per stream, such as 64M [default: 64M]."),
]
OnLimitOption = Annotated[
    str | None,
    Option(
        "--on-limit",
        metavar="|".join(OnLimit),
        help="Beyond it: keep head and tail, or stop the run [default: truncate].",
        complete=one_of(*OnLimit),
    ),
]
Queue = Annotated[
    bool,
    Option("--queue", help="Where no slot is free, wait for one instead of being refused."),
]
Priority = Annotated[
    str,
    Option("--priority", metavar="N", help="Of those that wait the greatest goes first, -100 to 100."),
]
CompletionOption = Annotated[
    str | None,
    Option(
        "--completion",
        metavar="|".join(Completion),
        help="Over when the program exits, or when all its children have too [default: leader].",
        complete=one_of(*Completion),
    ),
]
LifetimeOption = Annotated[
    str | None,
    Option(
        "--lifetime",
        metavar="|".join(Lifetime),
        help="scope: it is stopped when this command ends, also by a kill -9 [default: detached].",
        complete=one_of(*Lifetime),
    ),
]
Window = Annotated[
    str | None,
    Option(
        "--window",
        metavar="SIZE",
        help="With --lifetime scope: the program waits once so much of its output is not read, such as 256K.",
    ),
]
Label = Annotated[
    list[str] | None, Option("--label", "-l", metavar="NAME=VALUE", help="A label; may be repeated.")
]


def stdin_of(word: str | None) -> bytes | Literal["open"] | None:
    """None, the bytes, or ``"open"``.  A file that is really called ``open`` is ``./open``."""
    if word is None:
        return None
    if word == "open":
        return "open"
    if word == "-":
        return parse.read_file("stdin", 0)
    return parse.read_file("stdin", word)


def ask(words: Mapping[str, Any]) -> StartRequest:
    """The whole request from the options by name, validated before any state directory is touched.

    Raises INVALID_REQUEST naming the field at fault.
    """
    request_id, completion, lifetime = words["request_id"], words["completion"], words.get("lifetime")
    try:  # an empty word is none of them: a script's variable that was never set
        completion = Completion.LEADER if completion is None else Completion(completion)
    except ValueError:
        raise invalid("completion", "must be 'leader' or 'tree'") from None
    return StartRequest(
        command=_command(words),
        request_id=new_id("req", os.urandom) if request_id is None else request_id,
        limits=_limits(words),
        completion=completion,
        labels=parse.pairs("label", words["label"] or ()),
        policy=confined.policy(words),
        lifetime=Lifetime.DETACHED if lifetime is None else lifetime,
    )


def queueing(words: Mapping[str, Any]) -> Queueing:
    """From the options by name.  Raises INVALID_REQUEST."""
    return Queueing(words["queue"], parse.priority(words["priority"]))


def _command(words: Mapping[str, Any]) -> Command:
    variables: dict[str, str] = {}
    for path in words["env_file"] or ():
        variables.update(parse.env_file(path))
    variables.update(parse.pairs("env", words["env"] or ()))
    return Command(
        argv=list(words["argv"] or ()),
        cwd=_directory(words["cwd"]),
        env=variables,
        secret_env=parse.secret_pairs(words["secret_env"] or (), os.environ),
        inherit_env=tuple(words["inherit_env"] or ()),
        stdin=stdin_of(words["stdin"]),
        pty=_terminal(words),
    )


def _terminal(words: Mapping[str, Any]) -> Terminal | None:
    if not words["pty"] and words["size"] is None and words["term"] is None:
        return None
    from .asked_terminal import asked_terminal

    return asked_terminal(words, os.environ)


def _directory(word: str | None) -> str:
    if word == "":  # "$DIR" of a script that never set it
        raise invalid("cwd", "is empty", "name a directory, or leave --cwd out for this one")
    try:
        return os.path.abspath(word) if word is not None else os.getcwd()
    except FileNotFoundError:
        raise invalid("cwd", "this directory no longer exists", "give --cwd, or change directory") from None


def _limits(words: Mapping[str, Any]) -> Limits:
    kept = Limits()
    size = kept.max_stdout_bytes
    if words["max_output"] is not None:
        size = parse.size("limits.max_output", words["max_output"])
    grace = parse.seconds("limits.grace", words["grace"])
    try:
        on_limit = OnLimit(words["on_limit"] or kept.on_limit)
    except ValueError:
        raise invalid("limits.on_limit", "must be 'truncate' or 'terminate'") from None
    return Limits(
        timeout=parse.seconds("limits.timeout", words["timeout"]),
        idle_timeout=parse.seconds("limits.idle_timeout", words["idle_timeout"]),
        grace=kept.grace if grace is None else grace,
        max_stdout_bytes=size,
        max_stderr_bytes=size,
        on_limit=on_limit,
        **confined.limits(words),
    )


def describe(request: StartRequest, *, generated_id: bool) -> dict[str, object]:
    """What would be asked, without any value that may be secret: names of variables, size of stdin."""
    from durable_supervisor.model.secrets import secret_values
    from durable_supervisor.model.tokens import redact

    command = request.command
    secrets = secret_values(command.secrets, command.secret_env, command.env)
    stdin = command.stdin
    return {
        "schema": "durable-supervisor/start-request/1",
        "dry_run": True,
        "request_id": None if generated_id else request.request_id,
        "argv": [redact(word, secrets, tokens=command.redact_tokens) for word in command.argv],
        "cwd": command.cwd,
        "env": sorted(command.env),
        "secret_env": sorted(command.secret_env),
        "inherit_env": list(command.inherit_env),
        "stdin": stdin if stdin is None or isinstance(stdin, str) else {"bytes": len(stdin)},
        "pty": None if command.pty is None else command.pty.to_dict(),
        "limits": request.limits.to_dict(),
        "completion": request.completion.value,
        "labels": dict(request.labels),
        "policy": None if request.policy is None else request.policy.to_dict(),
        "lifetime": request.lifetime.value,
    }
