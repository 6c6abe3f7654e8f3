"""Pages that a process has for itself: which they are, and how to have them before they are written to."""

from __future__ import annotations

import ctypes
import mmap
import os
import struct

import pytest

from durable_supervisor.process.machine_code import PAGE_BYTES
from durable_supervisor.process.own_pages import take, written_by
from durable_supervisor.process.tree import children_of
from durable_supervisor.worker import rehearsal

PAGES = 64
WRITTEN = (3, 4, 5, 40)


@pytest.fixture
def memory() -> mmap.mmap:
    """Private, with something in each page."""
    made = mmap.mmap(-1, PAGES * PAGE_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    for page in range(PAGES):
        made[page * PAGE_BYTES] = page
    return made


def start_of(memory: mmap.mmap) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(memory))


def pages_in(ranges: bytes, memory: mmap.mmap) -> list[int]:
    start = start_of(memory)
    found = [
        (address - start) // PAGE_BYTES
        for first, length in struct.iter_unpack("=QQ", ranges)
        for address in range(first, first + length, PAGE_BYTES)
    ]
    return [page for page in found if 0 <= page < PAGES]


def own_pages(memory: mmap.mmap) -> list[int]:
    """That this process has and no other."""
    with open("/proc/self/pagemap", "rb") as pagemap:
        pagemap.seek(start_of(memory) // PAGE_BYTES * 8)
        entries = struct.unpack(f"={PAGES}Q", pagemap.read(PAGES * 8))
    return [page for page, entry in enumerate(entries) if entry >> 63 & entry >> 56 & 1]


def test_what_is_written_to_is_told_and_nothing_is_changed(memory: mmap.mmap) -> None:
    def write() -> None:
        for page in WRITTEN:
            memory[page * PAGE_BYTES] = 255

    told = written_by(write)
    if not told:
        pytest.skip("this kernel does not tell")
    assert pages_in(told, memory) == list(WRITTEN)
    assert [memory[page * PAGE_BYTES] for page in range(PAGES)] == list(range(PAGES))


def test_who_takes_pages_has_them_for_himself_unchanged(memory: mmap.mmap) -> None:
    start = start_of(memory)
    parts = (start, PAGE_BYTES), (1 << 40, PAGE_BYTES), (start + 7 * PAGE_BYTES, 2 * PAGE_BYTES)
    ranges = b"".join(struct.pack("=QQ", *part) for part in parts)

    def taken() -> int:
        if not take(ranges):
            return 3
        same = [memory[page * PAGE_BYTES] for page in range(PAGES)] == list(range(PAGES))
        return 0 if same and own_pages(memory) == [0, 7, 8] else 1

    pid = os.fork()
    if pid == 0:
        try:
            os._exit(taken())
        finally:
            os._exit(2)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if status == 3:
        pytest.skip("this kernel does not take them")
    assert status == 0


def test_who_fails_tells_nothing_and_leaves_no_child() -> None:
    def fail() -> None:
        raise OSError

    before = children_of(os.getpid())
    assert written_by(fail) == b""
    assert children_of(os.getpid()) == before


def test_where_nothing_was_told_nothing_is_taken() -> None:
    assert not take(b"")
    assert not take(struct.pack("=2Q", 1 << 40, PAGE_BYTES))  # where nothing is mapped


def test_a_rehearsal_that_was_done_for_all_is_not_done_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rehearsal, "_pages", b"")
    rehearsal.note_pages()
    if not rehearsal._pages or not take(rehearsal._pages):
        pytest.skip("this kernel does not tell, or does not take them")
    before = os.listdir("/proc/self/fd")
    monkeypatch.setattr(rehearsal, "_go_through", lambda: pytest.fail("rehearsed again"))
    rehearsal.rehearse()
    assert os.listdir("/proc/self/fd") == before
