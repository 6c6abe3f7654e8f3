"""Errors of a machine that has run out of something for the moment: nothing is known to be wrong."""

from __future__ import annotations

import errno
import os

_PASSING = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN})


def is_shortage(error: BaseException) -> bool:
    """Descriptors, memory or processes are short: what failed is worth trying again."""
    return isinstance(error, OSError) and error.errno in _PASSING


def are_descriptors_short(wanted: int) -> bool:
    """Has this process fewer left than ``wanted``?  For a library that does not say why it opened no file."""
    opened: list[int] = []
    try:
        while len(opened) < wanted:
            opened.append(os.open("/", os.O_PATH | os.O_CLOEXEC))
    except OSError as error:
        return is_shortage(error)
    finally:
        for fd in opened:
            os.close(fd)
    return False
