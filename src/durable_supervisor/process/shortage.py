"""Errors of a machine that has run out of something for the moment: nothing is known to be wrong."""

from __future__ import annotations

import errno

_PASSING = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN})


def is_shortage(error: BaseException) -> bool:
    """Descriptors, memory or processes are short: what failed is worth trying again."""
    return isinstance(error, OSError) and error.errno in _PASSING
