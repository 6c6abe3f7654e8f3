"""Random names.  ``random_bytes`` is passed in, so tests can fix it."""

from __future__ import annotations

from collections.abc import Callable

# Crockford's base 32 in lower case: no i, l, o, u to misread.  Of each byte five bits count.
_LETTERS = b"0123456789abcdefghjkmnpqrstvwxyz" * 8
RUN_ID_LENGTH = 16


def new_run_id(random_bytes: Callable[[int], bytes]) -> str:
    """16 characters, 80 random bits; short unique prefixes are easy to type."""
    return random_bytes(RUN_ID_LENGTH).translate(_LETTERS).decode("ascii")


def new_id(prefix: str, random_bytes: Callable[[int], bytes]) -> str:
    """An id for a control, a directory or a generated request, e.g. ``ctl-4f…``."""
    return f"{prefix}-{new_run_id(random_bytes)}"
