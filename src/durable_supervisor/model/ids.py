"""Random names.  ``random_bytes`` is passed in, so tests can fix it."""

from __future__ import annotations

from collections.abc import Callable

# Crockford's base 32 in lower case: no i, l, o, u to misread.
_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
RUN_ID_LENGTH = 16
_SHIFTS = range(5 * (RUN_ID_LENGTH - 1), -1, -5)


def new_run_id(random_bytes: Callable[[int], bytes]) -> str:
    """16 characters, 80 random bits; short unique prefixes are easy to type."""
    return _text(random_bytes(10))


def new_id(prefix: str, random_bytes: Callable[[int], bytes]) -> str:
    """An id for a control, a directory or a generated request, e.g. ``ctl-4f…``."""
    return f"{prefix}-{_text(random_bytes(10))}"


def _text(raw: bytes) -> str:
    number = int.from_bytes(raw, "big")
    return "".join([_ALPHABET[(number >> shift) & 31] for shift in _SHIFTS])
