"""What is asked of `run`, `stream` and `spawn`: checked, and with their defaults."""

from __future__ import annotations

import os
from collections.abc import AsyncIterable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypedDict

from ..model.arguments import BytesLike
from ..model.command import STDIN_OPEN, SUGAR, Command, Limits, OnLimit
from ..model.environment import inherited_names, program_environment
from ..model.errors import SupervisorError, invalid
from ..model.ids import new_id
from ..model.policy import Policy
from ..model.request import Lifetime, lifetime_of
from ..model.secrets import secret_values
from ..model.tokens import redact
from ..process.caller import own_variables
from ..process.program import StartFailure, resolve
from .cancel import CancellationToken

if TYPE_CHECKING:
    from ..client.aio import AsyncClient
    from ..client.sync import Client
    from ..supervisor.supervisor import Supervisor
    from .errand import Elsewhere
    from .session import Session

Input = BytesLike | AsyncIterable[bytes]

# Of `run` and `stream`: a call that is waited for ends by itself, soon after it should.
CALL_LIMITS: Final = Limits(timeout=300.0, grace=2.0, on_limit=OnLimit.TERMINATE)
# What is longer goes to the program in pieces, once it runs: a service takes no larger request.
INLINE_BYTES: Final = 256 * 1024
NO_SUGAR: Final[dict[str, Any]] = dict.fromkeys(SUGAR)


class Options(TypedDict, total=False):
    """What the three calls take by name.

    ``policy``, ``limits``, ``labels``, ``request_id``, ``queue``, ``priority``: see `Supervisor.start`.
    Without limits, here or in the command, `run` and `stream` have a timeout of 300 s, a grace of 2 s
    and ``on_limit="terminate"``; `spawn` has none but those of `Limits`.

    ``token``: ends the run when it is cancelled.  ``lifetime``: ``scope`` (unless said otherwise) for a
    run that ends with this process, ``detached`` for one that outlives it.  ``supervisor``: who runs it,
    a `Supervisor`, `Session` or client; else one of this process's own, for the default state directory.
    """

    policy: Policy | None
    limits: Limits | None
    token: CancellationToken | None
    lifetime: Lifetime | str
    labels: Mapping[str, str] | None
    request_id: str | None
    queue: bool
    priority: int
    supervisor: Supervisor | Session | AsyncClient | Client | Elsewhere | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One call, ready to be started.  Raises ``INVALID_REQUEST``, naming the field."""

    command: Command
    limits: Limits
    window: int | None = None
    fed: Input | None = None  # what is written to its stdin once it runs
    policy: Policy | None = None
    token: CancellationToken | None = None
    lifetime: Lifetime = Lifetime.SCOPE
    labels: Mapping[str, str] | None = None
    request_id: str = field(default_factory=lambda: new_id("req", os.urandom))
    queue: bool = False
    priority: int = 0

    @property
    def scoped(self) -> bool:
        return self.lifetime is Lifetime.SCOPE


def ask(
    command: Command,
    options: Options,
    *,
    otherwise: Limits,
    given: Input | None = None,
    window: int | None = None,
) -> Asked:
    """``otherwise``: the limits where none are given.  ``given``: the program's whole stdin."""
    if not isinstance(command, Command):
        raise invalid("command", "must be a Command", "Command(argv=['rg', 'TODO', 'src'])")
    rest: dict[str, Any] = {
        name: value for name, value in options.items() if name not in ("supervisor", "limits")
    }
    _check_names(rest)
    limits = command.limits_with(options.get("limits"), otherwise)
    if not isinstance(limits, Limits):
        raise invalid("limits", "must be Limits", "Limits(timeout=600)")
    token = rest.get("token")
    if not isinstance(token, CancellationToken | None):
        raise invalid("token", "must be a CancellationToken")
    rest["lifetime"] = lifetime = lifetime_of(rest.get("lifetime", Lifetime.SCOPE))
    if lifetime is Lifetime.DETACHED:
        window = None  # it outlives whoever would tell that its output is taken
    if rest.get("request_id") is None:  # one that is known already is answered without looking for anything
        rest.pop("request_id", None)
        _check_executable(command)
    plain = command.replace(**NO_SUGAR)  # its own limits are in ``limits`` now
    plain, fed = _with_input(plain, given, limits)
    return Asked(command=plain, limits=limits, window=window, fed=fed, **rest)


def _check_names(given: Iterable[str]) -> None:
    """A word that none of the calls has is a slip in the code, as of any function: a TypeError."""
    for name in given:
        if name not in Options.__optional_keys__:
            owner = next((kind for kind in (Command, Limits) if name in kind.FIELDS), None)
            hint = "" if owner is None else f"; it belongs in {owner.__name__}({name}=...)"
            raise TypeError(f"unexpected keyword argument {name!r} for run, stream and spawn{hint}")


def _with_input(command: Command, given: Input | None, limits: Limits) -> tuple[Command, Input | None]:
    """The command, and what is left to be fed to it."""
    if given is None:
        return command, None
    if command.stdin is not None:
        raise invalid("input", "is given beside the command's stdin", "give one of them")
    if not isinstance(given, BytesLike):
        if not isinstance(given, AsyncIterable):
            raise invalid("input", "must be bytes, or give them out asynchronously")
        return command.replace(stdin=STDIN_OPEN), given
    if limits.max_stdin_bytes is not None and len(given) > limits.max_stdin_bytes:
        raise invalid("input", f"is longer than max_stdin_bytes, which is {limits.max_stdin_bytes}")
    if len(given) <= INLINE_BYTES:
        return command.replace(stdin=bytes(given)), None
    return command.replace(stdin=STDIN_OPEN), given


def _check_executable(command: Command) -> None:
    """A name without a slash must be on the program's PATH."""
    name = command.argv[0]
    if "/" in name:
        return
    env = program_environment(command, own_variables(inherited_names(command)))
    try:
        here = os.path.join(os.getcwd(), os.fspath(command.cwd or ""))
        resolve(name, here, env["PATH"])
    except StartFailure as failure:
        secrets = secret_values(command.secrets, command.secret_env, env)
        shown = redact(name, secrets, tokens=command.redact_tokens)
        raise not_on_path(shown, os.strerror(failure.code)) from None
    except FileNotFoundError:
        return  # this process's own directory is gone: the start says so


def not_on_path(name: str, problem: str) -> SupervisorError:
    """``INVALID_REQUEST`` for an executable that its PATH does not have."""
    error = invalid("argv", f"{name!r} cannot be found on the program's PATH: {problem}", "give its path")
    error.details["executable"] = name
    return error
