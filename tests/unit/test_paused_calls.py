"""What a paused child does, as a table; and the machine code that goes through it, as an assembler has it."""

from __future__ import annotations

import ctypes
import itertools
import re
import shutil
import struct
import subprocess
from pathlib import Path

import pytest

from durable_supervisor.process.paused import calls
from durable_supervisor.process.paused.calls import Call, Place, arrange, content, default_signals, until_exec
from durable_supervisor.process.paused.code import MACHINES, WORDS
from durable_supervisor.process.paused.memory import Memory, Template
from durable_supervisor.process.program import Program, Stdio

PROGRAM = Program("/bin/true", ["true", "ü"], "/tmp", {"A": "1", "B": ""}, 0o22)


BARE = Program("/", [], "/", {}, 0)
LARGE = Program("/bin/true", ["", "x" * 100_000, ""], "/tmp", {f"N{n}": "v" * n for n in range(300)}, 0)


def table(gate: int = 7, failure: int = 5, **stdio: bool) -> list[Call]:
    return [*arrange(Stdio(9, 10, 11, **stdio), gate, failure), *until_exec(gate)]


def named(table: list[Call], name: str) -> list[tuple[object, ...]]:
    return [call.arguments for call in table if call.name == name]


# The table.


def test_the_order_is_the_guarantee() -> None:
    names = [call.name for call in table()]
    assert names[0] == "setsid"
    assert names[-3:] == ["read", "rt_sigprocmask", "execve"]
    assert names.count("read") == names.count("execve") == 1
    last_closed = max(index for index, name in enumerate(names) if name == "close_range")
    assert last_closed < names.index("read")


def test_only_a_byte_opens_the_gate() -> None:
    [gate] = [call for call in table() if call.name == "read"]
    assert (gate.arguments[0], gate.arguments[2], gate.least) == (7, 1, 1)


@pytest.mark.parametrize(("gate", "failure"), [*itertools.permutations((3, 4, 5, 9, 200), 2)])
def test_everything_is_closed_but_stdio_and_the_two_pipes(gate: int, failure: int) -> None:
    ranges = named(table(gate, failure), "close_range")
    assert ranges[-1][1] == 2**32 - 1
    kept = {fd for fd in range(300) if not any(low <= fd <= high for low, high, _ in ranges)}  # type: ignore[operator]
    assert kept == {0, 1, 2, gate, failure}


def test_what_is_in_its_place_only_becomes_inheritable() -> None:
    found = arrange(Stdio(0, 8, 8), 6, 7)
    assert named(found, "fcntl") == [(0, 2, 0)]
    assert named(found, "dup3") == [(8, 1, 0), (8, 2, 0)]


def test_a_terminal_is_taken_once_there_is_a_session() -> None:
    names = [call.name for call in table(terminal=True)]
    assert names.index("setsid") < names.index("dup3") < names.index("ioctl") < names.index("read")
    assert "ioctl" not in [call.name for call in table()]


def test_every_signal_that_can_be_changed_gets_its_default() -> None:
    signals = named(default_signals(), "rt_sigaction")
    assert [arguments[0] for arguments in signals] == [one for one in range(1, 65) if one not in (9, 19)]
    assert all(arguments[1] is calls.ZEROS for arguments in signals)


def test_the_program_gets_what_it_was_given() -> None:
    def given(name: str) -> list[object]:
        [places] = named(table(), name)
        return [content(PROGRAM)[place] for place in places if isinstance(place, Place)]

    assert given("execve") == [b"/bin/true", (b"true", "ü".encode()), (b"A=1", b"B=")]
    assert given("chdir") == [b"/tmp"]
    assert given("umask") == [0o22]


@pytest.mark.parametrize(
    ("argv", "env"),
    [(["a\0b"], {}), (["\ud800"], {}), (["a"], {"": "x"}), (["a"], {"a=b": "x"}), (["a"], {"a": "b\0"})],
)
def test_what_no_program_can_be_given(argv: list[str], env: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r".+"):
        content(Program("/bin/true", argv, "/", env, 0))


# In memory.


@pytest.mark.parametrize("program", [PROGRAM, BARE, LARGE], ids=["usual", "bare", "large"])
@pytest.mark.parametrize("machine", MACHINES)
def test_a_table_in_memory_says_the_same(machine: str, program: Program) -> None:
    numbers = MACHINES[machine].numbers
    zeros = ctypes.create_string_buffer(calls.ZERO_BYTES)
    listed = [*calls.after_failure(5), *default_signals(), *table()]
    given = content(program)
    memory = Memory(Template(listed, numbers, ctypes.addressof(zeros)), given)

    def meant(argument: object, word: int) -> bool:
        if isinstance(argument, Place) and argument not in given:
            return word == {calls.SCRATCH: memory.table - 8, calls.ZEROS: ctypes.addressof(zeros)}[argument]
        if isinstance(argument, Place):
            return meant(given[argument], word)
        if isinstance(argument, int):
            return word == argument
        if isinstance(argument, bytes):
            return ctypes.string_at(word) == argument
        assert isinstance(argument, tuple)
        *addresses, end = struct.unpack(
            f"={len(argument) + 1}Q", ctypes.string_at(word, 8 * (len(argument) + 1))
        )
        return end == 0 and [ctypes.string_at(address) for address in addresses] == list(argument)

    for index, call in enumerate(listed):
        words = struct.unpack(f"={WORDS}q", ctypes.string_at(memory.table + index * WORDS * 8, WORDS * 8))
        number, *arguments, least, step = words
        assert (number, least, step) == (numbers[call.name], call.least, call.step)
        assert all(map(meant, call.arguments, arguments))
    assert memory.stack % 16 == 0


# The code.


@pytest.mark.parametrize(
    ("machine", "prefix", "syntax"),
    [("x86_64", "", ".intel_syntax noprefix\n"), ("aarch64", "aarch64-linux-gnu-", "")],
)
def test_the_listing_is_what_an_assembler_makes_of_it(
    tmp_path: Path, machine: str, prefix: str, syntax: str
) -> None:
    if not shutil.which(f"{prefix}as"):
        pytest.skip(f"no assembler for {machine}")
    lines = MACHINES[machine].listing.splitlines()
    source = syntax + "\n".join(line.partition("|")[2] for line in lines) + "\n"
    assembled, raw = tmp_path / "code.o", tmp_path / "code"
    subprocess.run([f"{prefix}as", "-o", assembled, "-"], input=source, text=True, check=True)
    subprocess.run([f"{prefix}objcopy", "-O", "binary", "-j", ".text", assembled, raw], check=True)
    assert raw.read_bytes() == MACHINES[machine].code


def test_the_numbers_are_the_kernels() -> None:
    """As its headers have them, for the machines that share the generic numbers."""
    header = Path("/usr/include/asm-generic/unistd.h")
    if not header.exists():
        pytest.skip("no kernel headers")
    found = dict(re.findall(r"^#define __NR(?:3264)?_(\w+) (\d+)$", header.read_text(), re.MULTILINE))
    assert {name: int(found[name]) for name in MACHINES["aarch64"].numbers} == MACHINES["aarch64"].numbers


def test_every_machine_knows_every_call() -> None:
    wanted = {call.name for call in [*calls.after_failure(5), *default_signals(), *table()]}
    wanted |= {"fcntl", "ioctl"}
    assert all(set(machine.numbers) == wanted for machine in MACHINES.values())
