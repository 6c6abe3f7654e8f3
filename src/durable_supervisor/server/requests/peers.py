"""Who is at the other end, and what it may see: decisions only.

The kernel says which uid has connected (SO_PEERCRED, unix(7)); nothing that a
client sends can change it.  Each uid is one caller: a principal, for the log, and
an owner and a namespace, which its runs belong to.
"""

from __future__ import annotations

import pwd
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ...model.errors import ErrorCode, Phase, SupervisorError, invalid
from ...model.request import DEFAULT_OWNER

OPERATOR = "operator"
DEFAULT_NAMESPACE = "default"
_WORD = re.compile(r"[A-Za-z0-9._@-]{1,60}")  # two of them and a slash fit the journal's owner


@dataclass(frozen=True, slots=True)
class Caller:
    """One admitted uid.  The principal ``operator`` sees every run and may claim any owner."""

    uid: int
    principal: str = OPERATOR
    owner: str = DEFAULT_OWNER
    namespace: str = DEFAULT_NAMESPACE

    @classmethod
    def parse(cls, text: str) -> Caller:
        """``UID:principal:owner:namespace``; the uid may be a user's name, the last two may be left out.

        Raises ``INVALID_REQUEST``.
        """
        user, *words = text.split(":")
        if not 1 <= len(words) <= 3 or not all(_WORD.fullmatch(word) for word in words):
            raise invalid(
                "caller",
                "must be UID:principal:owner:namespace, each word out of A-Z a-z 0-9 . _ @ -",
                "1000:ci:team-a:default",
            )
        return cls(_uid_of(user), *words)

    @property
    def operator(self) -> bool:
        return self.principal == OPERATOR

    @property
    def key(self) -> str:
        """What the journal calls the owner of this caller's runs."""
        return owner_key(self.owner, self.namespace)

    @property
    def sees(self) -> str | None:
        """Whose runs exist for this caller; None for everybody's."""
        return None if self.operator else self.key


def owner_key(owner: str, namespace: str) -> str:
    """One word for owner and namespace."""
    return owner if namespace == DEFAULT_NAMESPACE else f"{owner}/{namespace}"


def callers_by_uid(own_uid: int, callers: Iterable[Caller]) -> Mapping[int, Caller]:
    """Everybody who is admitted.

    By default the service's own uid alone, as operator, and root, which could read
    the files anyway.  Raises ``INVALID_REQUEST`` for a uid that is given twice.
    """
    admitted: dict[int, Caller] = {}
    for caller in callers:
        if caller.uid in admitted:
            raise invalid("caller", f"names uid {caller.uid} twice", "give each user one caller")
        admitted[caller.uid] = caller
    for uid in (own_uid, 0):
        admitted.setdefault(uid, Caller(uid))
    return admitted


def claimed_owner(caller: Caller, owner: str | None, namespace: str | None) -> str:
    """The key that a start is made under.  Raises ``OWNER_MISMATCH``."""
    for name, claim, own in (("owner", owner, caller.owner), ("namespace", namespace, caller.namespace)):
        if claim is None or claim == own:
            continue
        if not caller.operator:
            raise _mismatch(name)
        if not _WORD.fullmatch(claim):
            raise invalid(name, "must be 1 to 60 characters out of A-Z a-z 0-9 . _ @ -")
    return owner_key(
        caller.owner if owner is None else owner, caller.namespace if namespace is None else namespace
    )


def listed_owner(caller: Caller, owner: str | None, namespace: str | None) -> str | None:
    """Whose runs a list or a feed shows; None for everybody's.  Raises ``OWNER_MISMATCH``."""
    if owner is None and namespace is None:
        return caller.sees
    return claimed_owner(caller, owner, namespace)


def denied(uid: int) -> SupervisorError:
    """``PEER_DENIED``."""
    return SupervisorError(
        ErrorCode.PEER_DENIED,
        f"user id {uid} is not admitted by this service",
        phase=Phase.CONNECT,
        hint="its operator can admit it: serve --caller UID:principal:owner:namespace",
        details={"uid": uid},
    )


def check_operator(caller: Caller, what: str) -> None:
    """Raises ``PEER_DENIED`` for anybody else."""
    if not caller.operator:
        raise SupervisorError(
            ErrorCode.PEER_DENIED,
            f"{what} is for the operator of this service",
            phase=Phase.CONNECT,
            hint="ask its operator",
            details={"uid": caller.uid},
        )


def _mismatch(name: str) -> SupervisorError:
    return SupervisorError(
        ErrorCode.OWNER_MISMATCH,
        f"{name}: the one claimed is not this caller's",
        phase=Phase.VALIDATE,
        hint=f"leave {name} out: it is known from the connection (GET /v1/info shows it)",
        details={"field": name},
    )


def _uid_of(user: str) -> int:
    if user.isascii() and user.isdigit():
        uid = int(user)
        if uid < (1 << 32) - 1:
            return uid
    else:
        try:
            return pwd.getpwnam(user).pw_uid
        except (KeyError, ValueError):
            pass
    raise invalid("caller", "names no user of this system", "begin with a uid or a user name")
