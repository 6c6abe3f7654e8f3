"""What the kernel does with a filter: the few instructions of classic BPF that ours are made of."""

from __future__ import annotations

import struct

from durable_supervisor.sandbox.calls import bpf
from durable_supervisor.sandbox.calls.bpf import Instruction

_DATA = struct.Struct("<iIQ6Q")  # struct seccomp_data


def answer(code: list[Instruction], architecture: int, number: int, *arguments: int) -> int:
    """The errno that a call is answered with; 0: it is allowed.  Every way through must end in time."""
    given = [*arguments, 0, 0, 0, 0, 0, 0][:6]
    signed = number if number < 1 << 31 else number - (1 << 32)
    data = _DATA.pack(signed, architecture, 0, *(argument % (1 << 64) for argument in given))
    loaded = place = 0
    while True:
        operation, if_true, if_false, constant = code[place]
        place += 1
        if operation == bpf.LOAD:
            (loaded,) = struct.unpack_from("<I", data, constant)
        elif operation == bpf.AND:
            loaded &= constant
        elif operation == bpf.IF_EQUAL:
            place += if_true if loaded == constant else if_false
        elif operation == bpf.IF_GREATER:
            place += if_true if loaded > constant else if_false
        else:
            assert operation == bpf.RETURN, operation
            return _errno(constant)


def _errno(result: int) -> int:
    if result == bpf.RET_ALLOW:
        return 0
    assert result & 0xFFFF0000 == bpf.RET_ERRNO, hex(result)
    return result & 0xFFFF
