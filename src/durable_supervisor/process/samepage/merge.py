"""Put an idle worker's memory upon the image of one.

A forked process shares its parent's memory until it writes to it, and in Python to look at an object is to
write to it: a start leaves a worker with 2.6 MB of pages of its own.  But what one writes, all write, at the
same addresses, and most of it is what was there before: reference counts that went up and down again.  So
most of these pages are, byte for byte, those of any other idle worker.  The kernel can find such pages by
itself (KSM) where the owner of the machine lets it search; we know where they are.

Nothing changes for the process.  What it writes to later is copied, as after a fork.
"""

from __future__ import annotations

import ctypes
import os
import select
import struct
import sys
from _thread import get_ident

from .. import own
from ..machine_code import PAGE_BYTES, load, no_signals
from . import code, image
from .regions import SMALLEST, Region, common, mergeable

Wait = tuple[int, int]  # the descriptor of an epoll, or -1, and milliseconds, as epoll_wait(2) takes them

_ROW = struct.Struct("=qqqq")
_MOST_MAPS = 1 << 16  # bytes of its text, some seven hundred regions; what comes behind is not shared
AT_ONCE: Wait = (-1, 0)
_TRIED_PAGES = 4
# The interpreter's cache of lookups in classes depends on the order in which they came: it is nowhere alike.
_forget_lookups = getattr(sys, "_clear_type_cache", None)
_Merge = ctypes.CFUNCTYPE(ctypes.c_long, ctypes.c_char_p)  # rows; how many were merged


class Merger:
    """Made in the zygote by `prepare`, and good in all that is forked from it.

    ``fd``: the image's.  ``wanted``: readable once somebody had use for an image, and there was none.
    """

    def __init__(self, machine: bytes, fd: int, wanted: int) -> None:
        self.fd = fd
        self.wanted = wanted
        self._merge = _Merge(load(machine))
        self._maps = bytearray(_MOST_MAPS)
        self._nothing = bytes(_MOST_MAPS)

    def settle(self, wait: Wait = AT_ONCE, *, fills: bool = False) -> bool:
        """Share what can be shared, and ``wait``; or make the image of this process's memory (``fills``).

        Both go the same way, so that their memory is alike when they come to the machine code.

        False, without a wait, while there is no image, which is asked for then, and where it would not be
        safe: the process must have one thread, as another one would write to memory that is being replaced.
        False as well where the image could not be made as a whole, since the interpreter may give memory back
        just after the look at it: another try may do better.  Raises OSError.
        """
        if not (image.is_sealed(self.fd) or fills):
            self.ask()
            return False
        ours = self._regions()
        if len(os.listdir("/proc/self/task")) != 1:
            return False
        if fills:
            image.lay_out(self.fd, ours)
        rows = self._rows(self.fd, ours, fills=fills)
        if _forget_lookups is not None:
            _forget_lookups()
        done = self._run(rows, AT_ONCE if fills else wait)
        if not fills:
            return done > 0
        whole = done == len(rows) // _ROW.size
        if whole:
            image.seal(self.fd)
        return whole

    def ask(self) -> None:
        """For an image.  Raises OSError."""
        os.eventfd_write(self.wanted, 1)

    def _run(self, rows: bytes, wait: Wait) -> int:
        epoll, milliseconds = wait
        with no_signals() as mask:
            return int(self._merge(rows + _ROW.pack(milliseconds, 0, epoll, ctypes.addressof(mask))))

    def _regions(self) -> list[Region]:
        """Ours.  The text that they are read from is wiped: it differs each time, and so would memory."""
        try:
            own.read_into("self/maps", self._maps)
            return mergeable(self._maps, get_ident())
        finally:
            self._maps[:] = self._nothing

    def _rows(self, fd: int, ours: list[Region], *, fills: bool = False) -> bytes:
        rows = b""
        for first, end, offset in image.rows_of(fd):
            for low, high in common(ours, (first, end)):
                rows += _ROW.pack(low, high - low, ~fd if fills else fd, offset + low - first)
        return rows

    def go_through(self) -> None:
        """All that `settle` does, but for what the machine code does.  Raises OSError."""
        fd = image.create()
        try:
            ours = self._regions()
            image.lay_out(fd, [(first, first + SMALLEST) for first, _ in ours])
            self._rows(fd, ours)
            self._run(b"", AT_ONCE)
            self.settle()
        finally:
            os.close(fd)
            os.eventfd_read(self.wanted)  # and nobody has asked

    def works(self) -> bool:
        """Is memory what it was, and its own?  Tried in a child, with some pages.  Raises OSError.

        Nothing else tells beforehand what an emulator or a system call filter makes of it.
        """
        pid = os.fork()
        if pid == 0:
            try:
                os._exit(0 if self._try_out() else 1)
            finally:
                os._exit(1)
        return os.waitpid(pid, 0)[1] == 0

    def _try_out(self) -> bool:
        """Some pages are the image's, some are not."""
        size = _TRIED_PAGES * PAGE_BYTES
        room = ctypes.create_string_buffer(size + PAGE_BYTES)
        start = ctypes.addressof(room) + PAGE_BYTES - ctypes.addressof(room) % PAGE_BYTES
        pages = (ctypes.c_char * size).from_address(start)
        content = bytes(range(256)) * (size // 256)
        ctypes.memmove(start, content, size)
        fd = image.create()
        image.lay_out(fd, [(start, start + size)])
        filled = self._run(_ROW.pack(start, size, ~fd, PAGE_BYTES), AT_ONCE)
        image.seal(fd)
        pages[PAGE_BYTES + 1] = b"!"
        expected = pages.raw
        with select.epoll() as epoll:
            merged = self._run(_ROW.pack(start, size, fd, PAGE_BYTES), (epoll.fileno(), 0))
        if (filled, merged) != (1, 1) or pages.raw != expected:
            return False
        pages[0] = b"?"
        return pages.raw[1:] == expected[1:] and os.pread(fd, size, PAGE_BYTES) == content


def prepare(lowest: int) -> Merger | None:
    """With an image that is still to be filled.  None of its descriptors is below ``lowest``.

    None where there can be none.  Raises OSError when we are short of something.
    """
    machine = code.for_machine(os.uname().machine)
    if machine is None or struct.calcsize("P") != 8 or _memory_is_counted():
        return None
    fd = image.create(lowest)
    try:
        wanted = image.lifted(os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK), lowest)
    except OSError:
        os.close(fd)
        raise
    merger = Merger(machine, fd, wanted)
    if merger.works():
        return merger
    os.close(merger.fd)
    os.close(merger.wanted)
    return None


def _memory_is_counted() -> bool:
    """Does the kernel refuse what it could not make good (proc_sys_vm(5): overcommit_memory)?

    There mremap(2) counts a mapping for new after what it replaces is gone: another process may have taken
    that memory in between, and ours would be lost.
    """
    return own.read("sys/vm/overcommit_memory").strip() == b"2"
