"""Which values are secret, decided by name or by the caller's word."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

MIN_SECRET_BYTES = 8
REDACTED = "[redacted]"

# A variable is secret when its upper-cased name contains one of these words.
SECRET_NAME_WORDS = (
    "TOKEN",
    "SECRET",
    "PASSWORD",
    "PASSWD",
    "PASSPHRASE",
    "CREDENTIAL",
    "PRIVATE_KEY",
    "API_KEY",
    "APIKEY",
    "ACCESS_KEY",
    "AUTH_KEY",
    "ENCRYPTION_KEY",
    "SIGNING_KEY",
    "COOKIE",
    "DSN",
    "CONNECTION_STRING",
)


def is_secret_name(name: str) -> bool:
    """Does this variable's name mark its value as secret?"""
    upper = name.upper()
    return any(word in upper for word in SECRET_NAME_WORDS)


def secret_values(
    registered: Iterable[str], secret_env: Mapping[str, str], program_env: Mapping[str, str]
) -> list[str]:
    """All values to keep off the disk, longest first so that a longer one wins.

    Values under 8 bytes that are secret only by their variable's name are left
    alone: redacting ``1`` would tear ordinary output.
    """
    found = set(registered) | set(secret_env.values())
    for name, value in program_env.items():
        if is_secret_name(name) and len(value.encode("utf-8", "surrogateescape")) >= MIN_SECRET_BYTES:
            found.add(value)
    return sorted(found, key=lambda value: (-len(value), value))


def redact_text(text: str, secrets: Iterable[str]) -> str:
    """``text`` with every secret value replaced; for argv, paths and messages (not streams)."""
    for secret in secrets:
        text = text.replace(secret, REDACTED)
    return text
