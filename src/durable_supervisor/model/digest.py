"""Keyed digests of a request, one per field, so that a conflict can name what differs.

Only digests are stored: keyed (HMAC-SHA-256, RFC 2104), so that a short value
cannot be guessed from the journal alone.  The resolved executable is not part
of it: a program upgraded behind the same name is still the same request.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from .command import STDIN_OPEN
from .compact import compact_encoder
from .hmac_sha256 import hmac_sha256
from .request import Lifetime, StartRequest

FIELDS = ("argv", "cwd", "env", "inherit_env", "stdin", "limits", "completion", "pty", "policy", "lifetime")
# The same in most requests, and never a secret: so their digests may be remembered.
_COMMON_FIELDS = frozenset({"inherit_env", "limits", "completion", "lifetime"})
_COMMON_VALUES = (b"[]", b"null", b"open")
_USUAL_BYTES = 1024  # of a value; a longer one is not worth the memory to be remembered

_canonical = compact_encoder(sort_keys=True)


def request_digests(request: StartRequest, cwd: str, key: bytes) -> dict[str, str]:
    """``{field: hex digest}`` by the names in `FIELDS`.  ``cwd`` is the absolute directory.

    ``pty``, ``policy`` and ``lifetime`` are there only if one is asked for (``detached`` needs no asking):
    digests from before there was any stay comparable.
    """
    command = request.command
    stdin = command.stdin
    canonical: dict[str, object] = {
        "argv": list(command.argv),
        "cwd": cwd,
        "env": sorted([*command.env.items(), *command.secret_env.items()]),
        "inherit_env": list(command.inherit_env),
        "limits": request.limits.to_dict(),
        "completion": request.completion.value,
    }
    if command.pty is not None:
        canonical["pty"] = command.pty.to_dict()
    if request.policy is not None:
        canonical["policy"] = request.policy.to_dict()
    if request.lifetime is not Lifetime.DETACHED:
        canonical["lifetime"] = request.lifetime.value
    digests = {name: _digest(key, name, _encode(value)) for name, value in canonical.items()}
    raw = b"null" if stdin is None else b"open" if stdin == STDIN_OPEN else b"bytes:" + bytes(stdin)
    digests["stdin"] = _digest(key, "stdin", raw)
    return digests


def _digest(key: bytes, name: str, value: bytes) -> str:
    common = value in _COMMON_VALUES or (name in _COMMON_FIELDS and len(value) <= _USUAL_BYTES)
    return _common_digest(key, name, value) if common else field_digest(key, name, value)


def field_digest(key: bytes, name: str, value: bytes) -> str:
    """HMAC-SHA-256 over the field's name and value, 32 hex characters (128 bits)."""
    return hmac_sha256(key, name.encode() + b"\0" + value).hex()[:32]


_common_digest = lru_cache(maxsize=64)(field_digest)


def differing_fields(stored: Mapping[str, str], offered: Mapping[str, str]) -> list[str]:
    """The names whose digests differ, in the order of `FIELDS`."""
    return [name for name in FIELDS if stored.get(name) != offered.get(name)]


def _encode(value: object) -> bytes:
    # Lone surrogates (undecodable bytes of argv or env) survive as \\udcXX escapes.
    return _canonical(value).encode("ascii")
