"""A start request: a command, its bounds, and who asks under which id."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeGuard

from .command import DEFAULT_LIMITS, MAX_LABELS, Command, Completion, Limits, completion_of
from .enforcement import AXES
from .errors import invalid

if TYPE_CHECKING:
    from .policy import Policy

DEFAULT_OWNER = "local"
MAX_PRIORITY = 100
MIN_WINDOW, MAX_WINDOW = 4096, 1 << 40
NO_LABELS: Mapping[str, str] = MappingProxyType({})
_LONGEST_WORD = 128
_ALNUM = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
_REQUEST_ID = frozenset(_ALNUM + "._-")
_OWNER = frozenset(_ALNUM + "._:@/-")
_LABEL_KEY = frozenset(_ALNUM + "._/-")


class Lifetime(StrEnum):
    DETACHED = "detached"  # until its end, whoever dies
    SCOPE = "scope"  # stopped by its worker when the process that asked for it is gone


class StartRequest:
    """Everything a caller asks for.  Raises ``INVALID_REQUEST`` naming the field at fault."""

    __slots__ = (
        "command", "completion", "labels", "lifetime", "limits", "owner", "policy", "request_id",
    )  # fmt: skip

    def __init__(
        self,
        *,
        command: Command,
        request_id: str,
        limits: Limits | None = None,
        completion: Completion | str = Completion.LEADER,
        labels: Mapping[str, str] = NO_LABELS,
        owner: str = DEFAULT_OWNER,
        policy: Policy | None = None,
        lifetime: Lifetime | str = Lifetime.DETACHED,
    ) -> None:
        if not isinstance(command, Command):
            raise invalid("command", "must be a Command", "Command(argv=['rg', 'TODO', 'src'])")
        self.command = command
        self.limits = DEFAULT_LIMITS if limits is None else limits
        if not isinstance(self.limits, Limits):
            raise invalid("limits", "must be Limits", "Limits(timeout=600)")
        self.request_id = check_request_id(request_id)
        if owner != DEFAULT_OWNER and not _is_word(owner, _OWNER):
            raise invalid("owner", "must be 1 to 128 characters out of A-Z a-z 0-9 . _ : @ / -")
        self.owner = owner
        self.completion = completion_of(completion)
        self.labels = {} if labels is NO_LABELS else _labels(labels)
        self.lifetime = lifetime_of(lifetime)
        if policy is not None:
            _check_policy(policy, self.limits)
        self.policy = policy
        stdin, most = command.stdin, self.limits.max_stdin_bytes
        if isinstance(stdin, bytes) and most is not None and len(stdin) > most:
            raise invalid("stdin", f"is longer than limits.max_stdin_bytes, which is {most}")

    @property
    def confines(self) -> bool:
        """Is anything asked for that the kernel is to hold the program to?"""
        return self.policy is not None or (self.limits is not DEFAULT_LIMITS and bool(self.limits.confining))


class Queueing:
    """May a start wait for a slot, and before whom?  No part of what is asked for: it is in no digest.

    Raises ``INVALID_REQUEST``.
    """

    __slots__ = ("priority", "queue")

    def __init__(self, queue: bool = False, priority: int = 0) -> None:
        if not isinstance(queue, bool):
            raise invalid("queue", "must be true or false")
        whole = isinstance(priority, int) and not isinstance(priority, bool)
        if not whole or abs(priority) > MAX_PRIORITY:
            raise invalid("priority", f"must be a whole number from -{MAX_PRIORITY} to {MAX_PRIORITY}")
        self.queue = queue
        self.priority = priority


def check_window(value: object, lifetime: Lifetime) -> int | None:
    """None, or a whole number of bytes; anything else is an ``INVALID_REQUEST``.

    A program that outlives whoever acknowledges its output would be held back for ever.
    """
    if value is None:
        return None
    if lifetime is not Lifetime.SCOPE:
        raise invalid("window", "needs lifetime 'scope'", "who acknowledges and who is waited for are one")
    if isinstance(value, bool) or not isinstance(value, int) or not MIN_WINDOW <= value <= MAX_WINDOW:
        raise invalid("window", f"must be a whole number of bytes from {MIN_WINDOW} to {MAX_WINDOW}")
    return value


def lifetime_of(value: object) -> Lifetime:
    """``Lifetime``, or its word; anything else is an ``INVALID_REQUEST``."""
    if isinstance(value, Lifetime):
        return value
    try:
        return Lifetime(str(value))
    except ValueError:
        raise invalid("lifetime", "must be 'detached' or 'scope'") from None


def _check_policy(policy: object, limits: Limits) -> None:
    """An axis that is named as required, and for which nothing is asked, is a contradiction."""
    from .policy import Policy  # most requests have none

    if not isinstance(policy, Policy):
        raise invalid("policy", "must be a Policy", 'Policy(network="none")')
    asked = {
        "tree": True,
        "privileges": True,
        "files": policy.filesystem is not None,
        "network": policy.network != "host",
        "memory": limits.max_memory_bytes is not None,
        "cpu": limits.max_cpu_seconds is not None or limits.max_cpus is not None,
        "processes": limits.max_processes is not None,
        "open_files": limits.max_open_files is not None,
        "file_size": limits.max_file_bytes is not None,
    }
    for axis in AXES:
        if policy.names(axis) and not asked[axis]:
            raise invalid(f"policy.enforcement[{axis}]", "is given, and nothing is asked of that axis")


def check_request_id(request_id: object) -> str:
    """The id itself, if it is a full match of ``[A-Za-z0-9._-]{1,128}``; else ``INVALID_REQUEST``."""
    if not _is_word(request_id, _REQUEST_ID):
        raise invalid(
            "request_id",
            "must be 1 to 128 characters out of A-Z a-z 0-9 . _ -",
            "choose an id that is stable for this piece of work, such as scan-17",
        )
    return request_id


def _labels(labels: Mapping[str, str]) -> dict[str, str]:
    if not isinstance(labels, Mapping) or len(labels) > MAX_LABELS:
        raise invalid("labels", f"must be a mapping of at most {MAX_LABELS} names")
    for key, value in labels.items():
        if not _is_word(key, _LABEL_KEY):
            raise invalid("labels", "has a name outside A-Z a-z 0-9 . _ / - (1 to 128 characters)")
        if not isinstance(value, str) or len(value) > 1024 or not _can_be_stored(value):
            raise invalid(f"labels[{key}]", "must be text of at most 1024 characters without NUL")
    return dict(labels)


def _is_word(value: object, letters: frozenset[str]) -> TypeGuard[str]:
    # No regular expression: each costs a command line a tenth of a millisecond to compile.
    return isinstance(value, str) and 1 <= len(value) <= _LONGEST_WORD and letters.issuperset(value)


def _can_be_stored(text: str) -> bool:
    """A NUL fits no SQLite text, lone surrogates fit neither that nor JSON."""
    try:
        return b"\0" not in text.encode()
    except UnicodeEncodeError:
        return False
