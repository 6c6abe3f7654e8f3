"""Which memory may lie upon an image, as decided from texts like those of proc(5)."""

from __future__ import annotations

import os
import threading

import pytest

from durable_supervisor.process.samepage.regions import SMALLEST, common, mergeable

HEAP, DATA, ARENA, THREAD, STACK = 0x55550000, 0x7F0000000000, 0x7F1000000000, 0x7F2000000000, 0x7FFF00000000
BIG = 4 * SMALLEST


def line(first: int, length: int, permissions: str, name: str = "") -> str:
    return f"{first:x}-{first + length:x} {permissions} 00000000 00:00 0 {' ' * 10 if name else ''}{name}"


def maps(*lines: str) -> bytes:
    return "".join(f"{one}\n" for one in lines).encode()


USUAL = maps(
    line(0x400000, BIG, "r-xp", "/usr/bin/python3"),
    line(HEAP, BIG, "rw-p", "[heap]"),
    line(DATA, BIG, "rw-p", "/usr/lib/libpython3.so"),
    line(DATA + BIG, BIG, "rw-s", "/dev/shm/shared"),
    line(ARENA, BIG, "rw-p"),
    line(ARENA + BIG, SMALLEST - 4096, "rw-p"),
    line(THREAD, BIG, "rw-p"),
    line(STACK, BIG, "rw-p", "[stack]"),
    line(STACK + BIG, BIG, "r--p", "[vvar]"),
)


def test_heaps_and_data_but_neither_stack_nor_the_threads_own_nor_what_is_small_or_shared() -> None:
    expected = [(HEAP, HEAP + BIG), (DATA, DATA + BIG), (ARENA, ARENA + BIG)]
    assert mergeable(USUAL, THREAD + 64) == expected
    assert mergeable(USUAL, 0) == [*expected, (THREAD, THREAD + BIG)]


@pytest.mark.parametrize("address", [THREAD, THREAD + BIG - 1])
def test_the_threads_block_may_be_anywhere_in_its_mapping(address: int) -> None:
    assert (THREAD, THREAD + BIG) not in mergeable(USUAL, address)


@pytest.mark.parametrize("name", ["/tmp/a rw-p b", "/tmp/1000-2000 rw-p ", "/tmp/x[stack]y"])
def test_names_of_files_are_no_permissions(name: str) -> None:
    text = maps(line(HEAP, BIG, "r--p", name), line(ARENA, BIG, "rw-p", name))
    assert mergeable(text, 0) == [(ARENA, ARENA + BIG)]


def test_the_last_line_may_be_cut_off() -> None:
    assert mergeable(USUAL[: USUAL.rindex(b" rw-p") + 6], THREAD)[-1] in [
        (ARENA, ARENA + BIG),
        (STACK, STACK + BIG),
    ]


def test_our_own_stack_and_thread_are_left_out() -> None:
    with open("/proc/self/maps", "rb") as file:
        text = file.read()
    here = threading.get_ident()
    found = mergeable(text, here)
    stack = next(one for one in text.splitlines() if one.endswith(b"[stack]"))
    assert found
    assert all(first % os.sysconf("SC_PAGE_SIZE") == 0 and end > first for first, end in found)
    assert not any(first <= here < end for first, end in found)
    assert int(stack.split(b"-")[0], 16) not in [first for first, _ in found]


@pytest.mark.parametrize(
    ("ours", "region", "expected"),
    [
        ([(0, BIG)], (0, BIG), [(0, BIG)]),
        ([(0, 2 * BIG)], (BIG, 3 * BIG), [(BIG, 2 * BIG)]),  # a heap that has grown, or joined its neighbour
        ([(0, BIG), (2 * BIG, 3 * BIG)], (0, 3 * BIG), [(0, BIG), (2 * BIG, 3 * BIG)]),
        ([(0, BIG)], (BIG, 2 * BIG), []),
        ([(0, BIG)], (BIG - SMALLEST + 4096, 2 * BIG), []),
        ([], (0, BIG), []),
    ],
)
def test_what_both_have(
    ours: list[tuple[int, int]], region: tuple[int, int], expected: list[tuple[int, int]]
) -> None:
    assert common(ours, region) == expected


def test_a_line_that_is_cut_off_says_nothing() -> None:
    stack = USUAL.index(b"[stack]")
    whole = mergeable(USUAL, 0)
    for cut in range(USUAL.rindex(b"\n", 0, stack) + 1, stack + len(b"[stack]")):
        assert mergeable(bytearray(USUAL[:cut]) + bytes(100), 0) == whole
