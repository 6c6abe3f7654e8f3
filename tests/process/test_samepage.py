"""The memory of processes that are put upon an image: it stays what it is, and what is alike is shared."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import mmap
import os
import resource
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from durable_supervisor.process.machine_code import PAGE_BYTES
from durable_supervisor.process.samepage import code, image
from durable_supervisor.process.samepage.merge import Merger, prepare
from durable_supervisor.process.samepage.regions import SMALLEST
from tests.support import eventually

if os.uname().machine not in code.LISTINGS:
    pytest.skip("there is no code for this machine", allow_module_level=True)

ROOT = Path(__file__).resolve().parents[2]
PAGES = SMALLEST // PAGE_BYTES


@pytest.fixture
def merger() -> Merger:
    return prepared()


def in_child(work: Callable[[], bool]) -> int:
    """Its exit status: 0 if it says yes."""
    pid = os.fork()
    if pid == 0:
        try:
            os._exit(0 if work() else 1)
        finally:
            os._exit(2)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def in_fresh_interpreter(work: Callable[[], None]) -> None:
    """What is about all the memory of a process: as workers are, and not this one.

    Thousands of tests have left their memory here, and the list of it may be longer than a `Merger` reads.
    """
    call = f"from {__name__} import {work.__name__} as work; work()"
    done = subprocess.run([sys.executable, "-c", call], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def prepared() -> Merger:
    made = prepare(3)
    assert made is not None
    return made


def make_image(merger: Merger) -> None:
    """Of a sibling of the processes that will use it; by more than one try, as the model has (`resting`)."""

    def give() -> bool:
        _room = room_for_objects()
        return any(merger.settle(fills=True) for _ in range(5))

    assert in_child(give) == 0


def room_for_objects() -> list[bytes]:
    """Free places of every size, among ones that are taken.

    Without any, each small object may have the interpreter map another part of its heap, which goes with the
    object: just after the look at it, say.
    """
    made = [bytes(size) for size in range(480) for _ in range(20)]
    del made[::2]
    return made


def address_of(memory: mmap.mmap) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(memory))


def private() -> mmap.mmap:
    return mmap.mmap(-1, SMALLEST, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


def rows(merger: Merger, start: int, length: int = SMALLEST, fd: int | None = None) -> bytes:
    """One, and the last, which waits for nothing."""
    return words(start, length, merger.fd if fd is None else fd, PAGE_BYTES, 0, 0, -1, 0)


def words(*what: int) -> bytes:
    return b"".join(word.to_bytes(8, "little", signed=True) for word in what)


def fill(merger: Merger, start: int, length: int) -> None:
    """The image, with this one region."""
    image.lay_out(merger.fd, [(start, start + length)])
    assert merger._merge(rows(merger, start, length, ~merger.fd)) == 1
    image.seal(merger.fd)


def own_pages(start: int, length: int) -> int:
    """Pages of a mapping that nobody else has: neither the image nor another process."""
    own = 0
    with open("/proc/self/pagemap", "rb") as pages:
        pages.seek(start // PAGE_BYTES * 8)
        for _ in range(length // PAGE_BYTES):
            entry = int.from_bytes(pages.read(8), "little")
            own += entry >> 63 & ~(entry >> 61) & 1  # present, and neither a file's nor shared
    return own


def test_what_is_alike_becomes_the_images_and_what_differs_stays(merger: Merger) -> None:
    def alike() -> bool:
        memory = private()
        start = address_of(memory)
        memory[:] = os.urandom(SMALLEST)
        fill(merger, start, SMALLEST)
        memory[3 * PAGE_BYTES + 5] ^= 1
        memory[SMALLEST - 1] ^= 1
        before = bytes(memory)
        merged = merger._merge(rows(merger, start))
        return merged == 1 and bytes(memory) == before and own_pages(start, SMALLEST) == 2

    assert in_child(alike) == 0


def test_what_is_written_afterwards_is_nobody_elses(merger: Merger) -> None:
    def apart() -> bool:
        memory = private()
        start = address_of(memory)
        memory[:] = bytes(range(256)) * (SMALLEST // 256)
        fill(merger, start, SMALLEST)
        filled = os.pread(merger.fd, SMALLEST, PAGE_BYTES)
        merger._merge(rows(merger, start))
        memory[:] = bytes(SMALLEST)
        return os.pread(merger.fd, SMALLEST, PAGE_BYTES) == filled and bytes(memory) == bytes(SMALLEST)

    assert in_child(apart) == 0


def test_it_can_be_done_again_and_again(merger: Merger) -> None:
    def again() -> bool:
        memory = private()
        start = address_of(memory)
        memory[:] = os.urandom(SMALLEST)
        fill(merger, start, SMALLEST)
        for at in range(50):
            memory[at * 1000] ^= 1
            before = bytes(memory)
            if merger._merge(rows(merger, start)) != 1 or bytes(memory) != before:
                return False
            memory[at * 1000] ^= 1
        return merger._merge(rows(merger, start)) == 1 and own_pages(start, SMALLEST) == 0

    assert in_child(again) == 0


def test_rows_with_a_hole_or_without_an_image_are_passed_over(merger: Merger) -> None:
    def holes() -> bool:
        memory = private()
        start = address_of(memory)
        memory[:] = os.urandom(SMALLEST)
        fill(merger, start, SMALLEST)
        before = bytes(memory)
        ctypes.CDLL(None).munmap(ctypes.c_void_p(start + 2 * PAGE_BYTES), PAGE_BYTES)
        if merger._merge(rows(merger, start)) != 0:
            return False
        head = ctypes.string_at(start, 2 * PAGE_BYTES)
        tail = ctypes.string_at(start + 3 * PAGE_BYTES, PAGE_BYTES)
        no_image = merger._merge(rows(merger, start, 2 * PAGE_BYTES, fd=9999))
        return (
            no_image == 0
            and head == before[: 2 * PAGE_BYTES]
            and tail == before[3 * PAGE_BYTES :][:PAGE_BYTES]
        )

    assert in_child(holes) == 0


@pytest.mark.parametrize("call", ["mmap", "mremap", "msync"])
def test_where_the_kernel_refuses_a_step_all_stays_as_it_is(merger: Merger, call: str) -> None:
    numbers = {
        "x86_64": {"mmap": 9, "mremap": 25, "msync": 26},
        "aarch64": {"mmap": 222, "mremap": 216, "msync": 227},
    }

    def refused() -> bool:
        memory = private()
        start = address_of(memory)
        memory[:] = os.urandom(SMALLEST)
        fill(merger, start, SMALLEST)
        memory[0] ^= 1
        before = bytes(memory)
        told = rows(merger, start)
        refuse(numbers[os.uname().machine][call])
        return merger._merge(told) == 0 and bytes(memory) == before and own_pages(start, SMALLEST) == PAGES

    assert in_child(refused) == 0


def refuse(number: int) -> None:
    """From now on this process gets EPERM for that system call: a seccomp(2) filter of three steps."""

    class Filter(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("steps", ctypes.c_void_p))

    steps = b"".join(
        what.to_bytes(2, "little") + bytes([yes, no]) + value.to_bytes(4, "little")
        for what, yes, no, value in (
            (0x20, 0, 0, 0),  # load the number
            (0x15, 0, 1, number),
            (0x06, 0, 0, 0x00050001),  # EPERM
            (0x06, 0, 0, 0x7FFF0000),  # allow
        )
    )
    kept = ctypes.create_string_buffer(steps)
    libc = ctypes.CDLL(None)
    assert libc.prctl(38, 1, 0, 0, 0) == 0
    assert libc.prctl(22, 2, ctypes.byref(Filter(4, ctypes.addressof(kept)))) == 0


def test_a_whole_interpreter_is_put_upon_the_image_of_its_sibling() -> None:
    in_fresh_interpreter(share_a_whole_interpreter)


def share_a_whole_interpreter() -> None:
    merger = prepared()
    make_image(merger)

    def goes_on() -> bool:
        kept = [{"number": number, "text": str(number) * 10} for number in range(2000)]
        merged = [merger.settle() for _ in range(5)]
        more = [str(number) for number in range(100_000)]
        whole = all(one["text"] == str(one["number"]) * 10 for one in kept)
        again = merger.settle()
        print(f"{merged}, {again}; as it was: {whole}, {more[-1]}", file=sys.stderr, flush=True)
        return all(merged) and again and whole and more[-1] == "99999"

    assert in_child(goes_on) == 0


def test_an_image_that_is_not_complete_is_not_used(merger: Merger) -> None:
    assert in_child(lambda: merger.settle()) == 1
    os.pwrite(merger.fd, (1).to_bytes(8, "little"), 0)  # as if its maker had died
    assert in_child(lambda: merger.settle()) == 1


@pytest.mark.parametrize(
    "row",
    [
        (0, SMALLEST, 1 << 40),  # behind its end
        (0, SMALLEST, PAGE_BYTES + 1),
        (1, SMALLEST, PAGE_BYTES),
        (SMALLEST, 0, PAGE_BYTES),
        (0, 1 << 63, (1 << 64) - PAGE_BYTES),
    ],
)
@pytest.mark.parametrize("count", [1, 1 << 40])
def test_what_somebody_else_has_sealed_is_passed_over(row: tuple[int, int, int], count: int) -> None:
    fd = image.create()
    os.truncate(fd, 4 * SMALLEST)
    os.pwrite(fd, b"".join(word.to_bytes(8, "little") for word in (count, *row)), 0)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, 0xF)
    assert image.rows_of(fd) == []
    os.close(fd)


def test_an_image_without_a_first_page_has_no_rows() -> None:
    fd = image.create()
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, 0xF)
    assert image.rows_of(fd) == []
    os.close(fd)


def test_a_second_thread_is_left_in_peace() -> None:
    in_fresh_interpreter(leave_a_second_thread_in_peace)


def leave_a_second_thread_in_peace() -> None:
    merger = prepared()
    make_image(merger)

    def with_thread() -> bool:
        over = threading.Event()
        thread = threading.Thread(target=over.wait)
        thread.start()
        merged = merger.settle()
        over.set()
        thread.join()
        # That says when the interpreter is done with it; the kernel may be at it for a moment longer.
        eventually(lambda: len(os.listdir("/proc/self/task")) == 1)
        return not merged and merger.settle()

    assert in_child(with_thread) == 0


def test_memory_that_goes_just_after_the_look_at_it_costs_no_more_than_a_try() -> None:
    """As the interpreter gives back a part of its heap: `private` stands for that."""
    in_fresh_interpreter(give_memory_back_just_after_the_look_at_it)


def give_memory_back_just_after_the_look_at_it() -> None:
    merger = prepared()
    given_back = [private()]
    looks = merger._regions

    def look() -> list[tuple[int, int]]:
        regions = looks()
        for memory in given_back:
            memory.close()
        given_back.clear()
        return regions

    def makes() -> bool:
        _room = room_for_objects()
        merger._regions = look  # type: ignore[method-assign]
        first = merger.settle(fills=True) or image.is_sealed(merger.fd)
        return not first and any(merger.settle(fills=True) for _ in range(5)) and image.is_sealed(merger.fd)

    assert in_child(makes) == 0
    assert in_child(lambda: merger.settle()) == 0


def test_an_image_that_could_not_be_filled_is_none(merger: Merger) -> None:
    def given() -> bool:
        size = sum(end - first for first, end in merger._regions())
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size // 2, resource.RLIM_INFINITY))
        with contextlib.suppress(OSError):
            merger.settle(fills=True)
        return True

    assert in_child(given) == 0
    assert in_child(lambda: merger.settle()) == 1


def test_who_waits_there_is_woken_by_readiness_time_and_signals() -> None:
    in_fresh_interpreter(wait_for_readiness_time_and_signals)


def wait_for_readiness_time_and_signals() -> None:
    merger = prepared()
    make_image(merger)

    def waits() -> bool:
        read, write = os.pipe()
        with select.epoll() as epoll:
            epoll.register(read, select.EPOLLIN)
            in_time = merger.settle((epoll.fileno(), 1))
            os.set_blocking(write, False)
            signal.set_wakeup_fd(write, warn_on_full_buffer=False)
            signal.signal(signal.SIGALRM, lambda *_: None)
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            heard = merger.settle((epoll.fileno(), -1)) and os.read(read, 9) == bytes([signal.SIGALRM])
            os.write(write, b"x")
            ready = merger.settle((epoll.fileno(), -1)) and len(epoll.poll(0)) == 1
        return in_time and heard and ready and not signal.pthread_sigmask(signal.SIG_BLOCK, ())

    assert in_child(waits) == 0


def test_who_has_nothing_to_share_does_not_wait(merger: Merger) -> None:
    def comes_back() -> bool:
        with select.epoll() as epoll:
            mask = ctypes.c_uint64()
            last = words(-1, 0, epoll.fileno(), ctypes.addressof(mask))
            return not merger.settle((epoll.fileno(), -1)) and merger._merge(last) == 0

    assert in_child(comes_back) == 0


def test_a_complete_image_cannot_be_changed_by_anybody() -> None:
    in_fresh_interpreter(try_to_change_a_complete_image)


def try_to_change_a_complete_image() -> None:
    merger = prepared()
    make_image(merger)
    for change in (
        lambda fd: os.pwrite(fd, b"x", PAGE_BYTES),
        lambda fd: os.ftruncate(fd, 0),
        lambda fd: os.ftruncate(fd, 1 << 30),
        lambda fd: mmap.mmap(fd, PAGE_BYTES, flags=mmap.MAP_SHARED, prot=mmap.PROT_WRITE),
        lambda fd: fcntl.fcntl(fd, fcntl.F_ADD_SEALS, 0x10),
    ):
        with pytest.raises(OSError):
            change(merger.fd)
    again = os.open(f"/proc/self/fd/{merger.fd}", os.O_RDWR)  # as the program of a run could, too
    with pytest.raises(OSError):
        os.pwrite(again, b"x", PAGE_BYTES)
    os.close(again)


def test_what_does_not_work_here_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    does_nothing = {"x86_64": "31 c0 c3", "aarch64": "00 00 80 d2 c0 03 5f d6"}
    kills = {  # itself
        "x86_64": "b8 27 00 00 00 0f 05 89 c7 be 09 00 00 00 b8 3e 00 00 00 0f 05",
        "aarch64": "88 15 80 d2 01 00 00 d4 21 01 80 d2 28 10 80 d2 01 00 00 d4",
    }
    for listing in (does_nothing, kills):
        monkeypatch.setattr(code, "LISTINGS", listing)
        assert prepare(3) is None


def test_where_memory_is_counted_none_is_moved(tmp_path: Path) -> None:
    """As the kernel says it; seen by a process that has another word of it."""
    (tmp_path / "word").write_text("2\n")
    shown = f"mount --bind '{tmp_path}/word' /proc/sys/vm/overcommit_memory"
    if subprocess.run(["unshare", "--mount", "sh", "-c", shown], capture_output=True).returncode != 0:
        pytest.skip("needs a mount namespace")
    code = "from durable_supervisor.process.samepage.merge import prepare; assert prepare(3) is None"
    look = f"{shown} && '{sys.executable}' -c '{code}'"
    subprocess.run(["unshare", "--mount", "sh", "-c", look], check=True)
