"""A table of system calls as the machine code of `process.paused.code` reads it:

scratch | what follows a failure | settled calls | calls | stack
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable

from .calls import SCRATCH, ZEROS, Argument, Call, Place, Reference
from .code import ARGUMENTS, SCRATCH_BYTES, WORDS
from .failure import FAILURE

_CALL = struct.Struct(f"={WORDS}q")
_WORD = 8
_STACK_BYTES = 64  # nothing is ever pushed: no code does, nor, with all signals blocked, does the kernel


class Encoder:
    """Knows what is the same for all tables: the numbers of system calls, and where there are zeros."""

    def __init__(self, numbers: dict[str, int], zeros: int) -> None:
        self._numbers = numbers
        self.zeros = zeros

    def encode(self, calls: list[Call], address: Callable[[Reference], int]) -> bytes:
        return b"".join(self._encode(call, address) for call in calls)

    def settle(self, calls: list[Call]) -> bytes:
        """Calls with nothing but numbers and zeros in them, which are the same in any memory."""
        return self.encode(calls, lambda _: self.zeros)

    def _encode(self, call: Call, address: Callable[[Reference], int]) -> bytes:
        words = [one if isinstance(one, int) else address(one) for one in call.arguments]
        words += [0] * (ARGUMENTS - len(words))
        return _CALL.pack(self._numbers[call.name], *words, call.least, call.step)


class Memory:
    """``table`` and ``stack``: addresses.  A child reads it until its exec: it may not be gone before."""

    def __init__(
        self, encoder: Encoder, after_failure: list[Call], settled: bytes, calls: list[Call]
    ) -> None:
        self._end = SCRATCH_BYTES + len(settled) + (len(after_failure) + len(calls)) * _CALL.size
        pointed_to = sum(_room(argument) for call in calls for argument in call.arguments)
        self._bytes = bytearray(self._end + pointed_to + _STACK_BYTES)
        self._pinned = ctypes.c_char.from_buffer(self._bytes)  # while it is, nothing can move them
        start = ctypes.addressof(self._pinned)
        self.table = start + SCRATCH_BYTES
        self.stack = start + len(self._bytes) & -16
        self._places = {SCRATCH: start, ZEROS: encoder.zeros}
        table = encoder.encode(after_failure, self._address) + settled + encoder.encode(calls, self._address)
        self._bytes[SCRATCH_BYTES : SCRATCH_BYTES + len(table)] = table

    def failure(self) -> tuple[int, int]:
        """The errno and the step that the child has left behind; zero and zero when nothing has failed."""
        code, step = FAILURE.unpack_from(self._bytes)
        return code, step

    def _address(self, reference: Reference) -> int:
        """Of what it stands for, which is put behind the table."""
        if isinstance(reference, Place):
            return self._places[reference]
        if isinstance(reference, bytes):
            return self._put(reference + b"\0")
        addresses = [self._put(text + b"\0") for text in reference]
        return self._put(struct.pack(f"={len(addresses) + 1}q", *addresses, 0))

    def _put(self, content: bytes) -> int:
        at, self._end = self._end, self._end + len(content)
        self._bytes[at : self._end] = content
        return self._places[SCRATCH] + at


def _room(argument: Argument) -> int:
    """How many bytes it takes behind the table."""
    if isinstance(argument, bytes):
        return len(argument) + 1
    if isinstance(argument, tuple):
        return sum(map(_room, argument)) + _WORD * (len(argument) + 1)
    return 0
