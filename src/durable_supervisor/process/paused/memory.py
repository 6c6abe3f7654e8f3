"""A table of system calls as the machine code of `process.paused.code` reads it:

scratch | what follows a failure | settled calls | calls | stack
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable

from .calls import SCRATCH, ZEROS, Call, Place, Reference
from .code import ARGUMENTS, SCRATCH_BYTES, WORDS
from .failure import FAILURE

_WORD = 8
_CALL_BYTES = WORDS * _WORD
_STACK_BYTES = 64  # nothing is ever pushed: no code does, nor, with all signals blocked, does the kernel
_UNUSED = (0,) * ARGUMENTS


class Encoder:
    """Knows what is the same for all tables: the numbers of system calls, and where there are zeros."""

    def __init__(self, numbers: dict[str, int], zeros: int) -> None:
        self._numbers = numbers
        self.zeros = zeros

    def encode(self, calls: list[Call], address: Callable[[Reference], int]) -> bytes:
        words: list[int] = []
        for call in calls:
            words.append(self._numbers[call.name])
            for one in call.arguments:
                # Neither a comprehension nor a generator, each of which is a call more in CPython 3.11.
                words.append(one if isinstance(one, int) else address(one))  # noqa: PERF401
            words += (*_UNUSED[len(call.arguments) :], call.least, call.step)
        return _packed(words)

    def settle(self, calls: list[Call]) -> bytes:
        """Calls with nothing but numbers and zeros in them, which are the same in any memory."""
        return self.encode(calls, lambda _: self.zeros)


class Memory:
    """``table`` and ``stack``: addresses.  A child reads it until its exec: it may not be gone before."""

    def __init__(
        self, encoder: Encoder, after_failure: list[Call], settled: bytes, calls: list[Call]
    ) -> None:
        self._end = SCRATCH_BYTES + len(settled) + (len(after_failure) + len(calls)) * _CALL_BYTES
        references = [one for call in calls for one in call.arguments if not isinstance(one, int)]
        self._bytes = bytearray(self._end + sum(map(_room, references)) + _STACK_BYTES)
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
        return self._put_vector(reference)

    def _put_vector(self, texts: tuple[bytes, ...]) -> int:
        addresses = [self._put(b"\0".join(texts) + b"\0")]
        for text in texts:
            addresses.append(addresses[-1] + len(text) + 1)
        addresses[-1] = 0  # in the place of where a further one would begin
        return self._put(_packed(addresses))

    def _put(self, content: bytes) -> int:
        at, self._end = self._end, self._end + len(content)
        self._bytes[at : self._end] = content
        return self._places[SCRATCH] + at


def _packed(words: list[int]) -> bytes:
    return struct.pack(f"={len(words)}q", *words)


def _room(reference: Reference) -> int:
    """How many bytes it takes behind the table."""
    if isinstance(reference, bytes):
        return len(reference) + 1
    if isinstance(reference, tuple):
        return sum(map(len, reference)) + max(len(reference), 1) + _WORD * (len(reference) + 1)
    return 0
