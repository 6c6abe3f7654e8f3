"""Reserve disk blocks past a file's end (fallocate(2), FALLOC_FL_KEEP_SIZE).

`os.posix_fallocate` would make the file longer, and readers would see NULs.
"""

from __future__ import annotations

import ctypes
import errno
import os
import sys
from collections.abc import Callable

_KEEP_SIZE = 1
_MOST = 4096  # some file systems tell of larger blocks than a small file gets
_UNSUPPORTED = frozenset({errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL})


def _load() -> Callable[[int, int, int, int], int] | None:
    if sys.platform != "linux":
        return None
    library = ctypes.CDLL(None, use_errno=True)
    function = getattr(library, "fallocate64", None) or getattr(library, "fallocate", None)
    if function is not None:
        function.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
        function.restype = ctypes.c_int
    loaded: Callable[[int, int, int, int], int] | None = function
    return loaded


_fallocate = _load()


def reserve(fd: int, offset: int, length: int) -> bool:
    """Have ``length`` bytes at ``offset`` backed by the disk.  False where that cannot be done at all.

    Raises OSError (ENOSPC, EDQUOT …).
    """
    if _fallocate is None:
        return False
    while _fallocate(fd, _KEEP_SIZE, offset, length) != 0:
        number = ctypes.get_errno()
        if number == errno.EINTR:
            continue
        if number in _UNSUPPORTED:
            return False
        raise OSError(number, os.strerror(number))
    return True


def block_size(fd: int) -> int:
    """A file has its last block whole, of so many bytes at least; 1 where the file system does not say."""
    try:
        return min(os.fstatvfs(fd).f_frsize, _MOST) or 1
    except OSError:
        return 1
