"""Rules on system calls, and the classic BPF program that carries them out (seccomp(2)).

Pure: rules in, instructions out.  A program sees the number of the call, the
architecture it is made in, and six arguments as plain numbers: never what a pointer points to.
"""

from __future__ import annotations

import errno
import struct

from .syscalls import NEWEST, Machine

# One struct sock_filter: operation, jump if true, jump if false, constant (linux/filter.h).
_INSTRUCTION = struct.Struct("=HBBI")
INSTRUCTION_SIZE = _INSTRUCTION.size
Instruction = tuple[int, int, int, int]

LOAD, AND, RETURN = 0x20, 0x54, 0x06  # BPF_LD|W|ABS, BPF_ALU|AND|K, BPF_RET|K
IF_EQUAL, IF_GREATER = 0x15, 0x25  # BPF_JMP|JEQ|K, BPF_JMP|JGT|K

# Offsets in struct seccomp_data (linux/seccomp.h).
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16
_LAST_WORD = 0xFFFFFFFF

RET_ALLOW, RET_ERRNO = 0x7FFF0000, 0x00050000
ALLOWED = 0  # as the error of a rule or case


class Argument:
    """A condition: argument ``index`` is one of ``values``, of its ``mask`` alone.

    It looks at the low 32 bits, as the kernel does with every argument that is asked about here:
    those are ``int`` or flags below bit 32.  Whatever stands above must not make a difference.
    """

    __slots__ = ("index", "mask", "values")

    def __init__(self, index: int, *values: int, mask: int = _LAST_WORD) -> None:
        self.index = index
        self.values = values
        self.mask = mask


class Case:
    """Where every one of ``arguments`` holds, ``error`` is the answer."""

    __slots__ = ("arguments", "error")

    def __init__(self, error: int, *arguments: Argument) -> None:
        self.error = error
        self.arguments = arguments


class Rule:
    """The answer to the calls ``names``: of the first case that fits, ``error`` where none does."""

    __slots__ = ("cases", "error", "names")

    def __init__(self, error: int, names: tuple[str, ...], *cases: Case) -> None:
        self.error = error
        self.names = names
        self.cases = cases


def assemble(rules: list[Rule], machine: Machine) -> list[Instruction]:
    """The program.  What no rule names is allowed.

    Calls in a foreign architecture (32-bit ones can be made by any process) have other numbers, so
    no rule would see them: there are none.  The same goes for calls newer than the table, x32 among them.
    ENOSYS is what a kernel without them says, and what libraries know to deal with.
    """
    code = [
        (LOAD, 0, 0, _ARCHITECTURE),
        (IF_EQUAL, 1, 0, machine.audit_arch),
        _answer(errno.ENOSYS),
        (LOAD, 0, 0, _NUMBER),
        (IF_GREATER, 0, 1, NEWEST),
        _answer(errno.ENOSYS),
    ]
    for rule in rules:
        code += _rule(rule, machine)
    return [*code, _answer(ALLOWED)]


def encode(code: list[Instruction]) -> bytes:
    """As an array of struct sock_filter."""
    return b"".join(_INSTRUCTION.pack(*instruction) for instruction in code)


def _rule(rule: Rule, machine: Machine) -> list[Instruction]:
    """Every way through its body ends with an answer: the number stays loaded for the next rule."""
    body = [instruction for case in rule.cases for instruction in _case(case)]
    body.append(_answer(rule.error))
    numbers = machine.calls(rule.names)
    return _one_of(numbers, otherwise=len(body)) + body if numbers else []


def _case(case: Case) -> list[Instruction]:
    """From the end to the front: each argument that does not fit jumps over all that is left."""
    code = [_answer(case.error)]
    for argument in reversed(case.arguments):
        code = [
            (LOAD, 0, 0, _ARGUMENTS + 8 * argument.index),  # little-endian: the low half is first
            (AND, 0, 0, argument.mask),
            *_one_of(list(argument.values), otherwise=len(code)),
            *code,
        ]
    return code


def _one_of(values: list[int], otherwise: int) -> list[Instruction]:
    """Go on behind it where the loaded number is among ``values``; else jump ``otherwise`` further."""
    *most, last = values
    tests = [(IF_EQUAL, len(most) - place, 0, value) for place, value in enumerate(most)]
    return [*tests, (IF_EQUAL, 0, otherwise, last)]


def _answer(error: int) -> Instruction:
    return (RETURN, 0, 0, RET_ALLOW if error == ALLOWED else RET_ERRNO | error)
