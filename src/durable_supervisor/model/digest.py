"""Keyed digests of a request, one per field, so that a conflict can name what differs.

Only digests are stored: keyed (HMAC-SHA-256, RFC 2104), so that a short value
cannot be guessed from the journal alone.  The resolved executable is not part
of it: a program upgraded behind the same name is still the same request.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from .command import DEFAULT_LIMITS, STDIN_OPEN, Completion, Limits
from .compact import compact_encoder
from .hmac_sha256 import hmac_sha256
from .request import Lifetime, StartRequest

FIELDS = ("argv", "cwd", "env", "inherit_env", "stdin", "limits", "completion", "pty", "policy", "lifetime")

_canonical = compact_encoder(sort_keys=True)


def request_digests(request: StartRequest, cwd: str, key: bytes) -> dict[str, str]:
    """``{field: hex digest}`` by the names in `FIELDS`.  ``cwd`` is the absolute directory.

    ``pty``, ``policy`` and ``lifetime`` are there only if one is asked for (``detached`` needs no asking):
    digests from before there was any stay comparable.
    """
    command = request.command
    given: dict[str, object] = {"argv": list(command.argv), "cwd": cwd}
    if command.env or command.secret_env:
        given["env"] = sorted([*command.env.items(), *command.secret_env.items()])
    if command.inherit_env:
        given["inherit_env"] = list(command.inherit_env)
    if request.completion is not Completion.LEADER:
        given["completion"] = str(request.completion)
    if command.pty is not None:
        given["pty"] = command.pty.to_dict()
    if request.policy is not None:
        given["policy"] = request.policy.to_dict()
    if request.lifetime is not Lifetime.DETACHED:
        given["lifetime"] = str(request.lifetime)
    digests = {**_usual(key)}
    for name, value in given.items():
        digests[name] = field_digest(key, name, _encode(value))
    if request.limits is not DEFAULT_LIMITS:
        digests["limits"] = _limits_digest(key, request.limits)
    if command.stdin is not None:
        raw = b"open" if command.stdin == STDIN_OPEN else b"bytes:" + bytes(command.stdin)
        digests["stdin"] = field_digest(key, "stdin", raw)
    return digests


@lru_cache(maxsize=4)  # a supervisor has one key
def _usual(key: bytes) -> Mapping[str, str]:
    """Of what most requests have in common: of the fields in which they ask for nothing."""
    usual = {
        "env": _encode([]),
        "inherit_env": _encode([]),
        "completion": _encode(str(Completion.LEADER)),
        "limits": _encode(DEFAULT_LIMITS.to_dict()),
        "stdin": b"null",
    }
    return {name: field_digest(key, name, value) for name, value in usual.items()}


@lru_cache(maxsize=64)  # a caller has some few of them
def _limits_digest(key: bytes, limits: Limits) -> str:
    return field_digest(key, "limits", _encode(limits.to_dict()))


def field_digest(key: bytes, name: str, value: bytes) -> str:
    """HMAC-SHA-256 over the field's name and value, 32 hex characters (128 bits)."""
    return hmac_sha256(key, name.encode() + b"\0" + value).hex()[:32]


def differing_fields(stored: Mapping[str, str], offered: Mapping[str, str]) -> list[str]:
    """The names whose digests differ, in the order of `FIELDS`."""
    return [name for name in FIELDS if stored.get(name) != offered.get(name)]


def _encode(value: object) -> bytes:
    # Lone surrogates (undecodable bytes of argv or env) survive as \\udcXX escapes.
    return _canonical(value).encode("ascii")
