"""A table of system calls as the machine code of `process.paused.code` reads it:

scratch | what follows a failure | calls | what belongs to this program | stack
"""

from __future__ import annotations

import ctypes
import struct
from itertools import accumulate

from .calls import SCRATCH, ZEROS, Call, Content, Place
from .code import ARGUMENTS, SCRATCH_BYTES
from .failure import FAILURE

_WORD = struct.Struct("=q")
_STACK_BYTES = 64  # nothing is ever pushed: no code does, nor, with all signals blocked, does the kernel
_UNUSED = (0,) * ARGUMENTS


class Template:
    """A table of any program: ``holes`` are the offsets in it of the words that stand for places.

    Made once: to encode seventy calls for each run takes longer than to fill in what is the program's own.
    """

    __slots__ = ("holes", "table")

    def __init__(self, calls: list[Call], numbers: dict[str, int], zeros: int) -> None:
        """``numbers``: of system calls; ``zeros``: where there are some."""
        words: list[int] = []
        self.holes: list[tuple[int, Place]] = []
        for call in calls:
            words.append(numbers[call.name])
            for one in call.arguments:
                if isinstance(one, Place) and one is not ZEROS:
                    self.holes.append((len(words) * _WORD.size, one))
                words.append(one if isinstance(one, int) else zeros if one is ZEROS else 0)
            words += (*_UNUSED[len(call.arguments) :], call.least, call.step)
        self.table = _packed(words)


class Memory:
    """``table`` and ``stack``: addresses.  A child reads it until its exec: it may not be gone before."""

    def __init__(self, template: Template, content: dict[Place, Content]) -> None:
        self._end = SCRATCH_BYTES + len(template.table)
        self._bytes = bytearray(self._end + sum(map(_room, content.values())) + _STACK_BYTES)
        self._pinned = ctypes.c_char.from_buffer(self._bytes)  # while it is, nothing can move them
        self._start = ctypes.addressof(self._pinned)
        self.table = self._start + SCRATCH_BYTES
        self.stack = self._start + len(self._bytes) & -16
        self._bytes[SCRATCH_BYTES : self._end] = template.table
        words = {SCRATCH: self._start}
        for place, value in content.items():
            words[place] = self._word(value)
        for offset, place in template.holes:
            _WORD.pack_into(self._bytes, SCRATCH_BYTES + offset, words[place])

    def failure(self) -> tuple[int, int]:
        """The errno and the step that the child has left behind; zero and zero when nothing has failed."""
        code, step = FAILURE.unpack_from(self._bytes)
        return code, step

    def _word(self, value: Content) -> int:
        """A number, or the address of what is put behind the table."""
        if isinstance(value, int):
            return value
        if isinstance(value, bytes):
            return self._put(value + b"\0")
        # Each begins behind the one before; in the place of where a further one would begin, a null.
        first = self._put(b"\0".join(value) + b"\0")
        addresses = [*accumulate([len(text) + 1 for text in value], initial=first)]
        addresses[-1] = 0
        return self._put(_packed(addresses))

    def _put(self, content: bytes) -> int:
        at, self._end = self._end, self._end + len(content)
        self._bytes[at : self._end] = content
        return self._start + at


def _packed(words: list[int]) -> bytes:
    return struct.pack(f"={len(words)}q", *words)


def _room(value: Content) -> int:
    """How many bytes it takes behind the table."""
    if isinstance(value, int):
        return 0
    if isinstance(value, bytes):
        return len(value) + 1
    return sum(map(len, value)) + max(len(value), 1) + _WORD.size * (len(value) + 1)
