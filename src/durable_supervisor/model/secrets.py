"""Which values are secret, decided by name or by the caller's word."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache

TYPE_CHECKING = False  # importing typing would cost every worker's start some milliseconds
if TYPE_CHECKING:
    from typing import AnyStr

MIN_SECRET_BYTES = 8
MAX_SECRETS = 512  # of one run: each is looked for in all that is stored, while others wait for their start
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
_USUAL_NAME = 64  # characters; a longer one is not worth the memory to be remembered


def is_secret_name(name: str) -> bool:
    """Does this variable's name mark its value as secret?"""
    return _known_name(name) if len(name) <= _USUAL_NAME else _has_secret_word(name)


def _has_secret_word(name: str) -> bool:
    upper = name.upper()
    for word in SECRET_NAME_WORDS:  # noqa: SIM110  a generator costs more than all the searches
        if word in upper:
            return True
    return False


_known_name = lru_cache(maxsize=1024)(_has_secret_word)  # every start asks of the same few


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
    if not found:
        return []  # as of most runs: where caches are cold, to sort nothing takes as long as all above
    return sorted(found, key=lambda value: (-len(value), value))


def redact_text(text: str, secrets: Collection[str]) -> str:
    """``text`` with every secret value replaced; for argv, paths and messages (not streams)."""
    if not secrets:
        return text
    parts: list[str] = []
    position = 0
    for start, end in secret_spans(text, secrets):
        parts += (text[position:start], REDACTED)
        position = end
    return "".join(parts) + text[position:]


def secret_spans(text: AnyStr, secrets: Iterable[AnyStr]) -> list[tuple[int, int]]:
    """Where secrets stand in ``text``: (start, end), in order, overlapping and touching ones merged.

    Replacing one after the other would leave a piece of each that overlaps another.
    """
    return merged([stretch for secret in secrets for stretch in stretches(text, secret)])


def merged(found: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """These stretches in order; of overlapping and touching ones, one."""
    whole: list[tuple[int, int]] = []
    for start, end in sorted(found):
        if whole and start <= whole[-1][1]:
            whole[-1] = (whole[-1][0], max(end, whole[-1][1]))
        else:
            whole.append((start, end))
    return whole


def stretches(text: AnyStr, secret: AnyStr) -> list[tuple[int, int]]:
    """Where one secret stands, again and again without a gap, in time linear in the text."""
    found: list[tuple[int, int]] = []
    at = text.find(secret)
    while at >= 0:
        begin = at
        while (again := text.find(secret, at + 1, at + 2 * len(secret))) >= 0:
            at = _last_repeat(text, at, again - at, len(secret))
        found.append((begin, at + len(secret)))
        at = text.find(secret, at + len(secret))
    return found


def _last_repeat(text: AnyStr, at: int, step: int, size: int) -> int:
    """Something of ``size`` stands at ``at`` and again at ``at + step``: where it does so for the last time,
    every ``step`` on.

    Not one after the other: ``aaaaaaaa`` stands in a megabyte of ``a`` a million times.
    """
    end, chunk = at + step + size, size
    while chunk:
        if end + chunk <= len(text) and text[end : end + chunk] == text[end - step : end - step + chunk]:
            end += chunk  # the text goes on as it was a step before
            chunk *= 2
        else:
            chunk //= 2
    return at + (end - at - size) // step * step
