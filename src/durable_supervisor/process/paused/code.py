"""The machine code that carries out a table of system calls, for each machine that has been tried.

It is one function, ``start(flags, stack, calls)``: clone(2), which returns the child's pid (or
-errno) to its caller, while the child goes on with the table and never returns.  A call of the table is
seven words of 64 bits:

    number, four arguments, the least result that is a success, the step to name when it failed

The first two calls are what follows a failure; the child begins with the third.  In the eight
bytes before the table it leaves the errno and the step of the call that failed.  It uses no stack.
"""

from __future__ import annotations

from ..machine_code import assembled

ARGUMENTS = 4
WORDS = 1 + ARGUMENTS + 2
FIRST = 2  # calls before it: those that follow a failure
SCRATCH_BYTES = 8


class Machine:
    """``listing``: the code in hexadecimal, and as an assembler takes it; ``numbers``: of system calls."""

    __slots__ = ("code", "listing", "numbers")

    def __init__(self, listing: str, numbers: dict[str, int]) -> None:
        self.listing = listing
        self.numbers = numbers
        self.code = assembled(listing)


# The kernel keeps every register of a caller but rax, rcx and r11 (and x0), in a new child as well.
_X86_64 = """
                | start:
 b8 38 00 00 00 |     mov   eax, 56           # clone(flags, stack)
 0f 05          |     syscall
 85 c0          |     test  eax, eax
 74 01          |     jz    child
 c3             |     ret
                | child:
 49 89 d4       |     mov   r12, rdx          # r12: the table
 48 8d 5a 70    |     lea   rbx, [rdx+2*56]   # rbx: the current call
                | next:
 48 8b 03       |     mov   rax, [rbx]
 48 8b 7b 08    |     mov   rdi, [rbx+8]
 48 8b 73 10    |     mov   rsi, [rbx+16]
 48 8b 53 18    |     mov   rdx, [rbx+24]
 4c 8b 53 20    |     mov   r10, [rbx+32]
 0f 05          |     syscall
 48 3b 43 28    |     cmp   rax, [rbx+40]
 7c 06          |     jl    failed
 48 83 c3 38    |     add   rbx, 56
 eb df          |     jmp   next
                | failed:
 f7 d8          |     neg   eax
 41 89 44 24 f8 |     mov   [r12-8], eax      # the errno
 8b 43 30       |     mov   eax, [rbx+48]
 41 89 44 24 fc |     mov   [r12-4], eax      # the step
 4c 89 e3       |     mov   rbx, r12
 eb cb          |     jmp   next
"""

_AARCH64 = """
             | start:
 88 1b 80 d2 |     mov   x8, #220          // clone(flags, stack)
 01 00 00 d4 |     svc   #0
 40 00 00 b4 |     cbz   x0, child
 c0 03 5f d6 |     ret
             | child:
 f3 03 02 aa |     mov   x19, x2           // x19: the table
 54 c0 01 91 |     add   x20, x2, #2*56    // x20: the current call
             | next:
 88 02 40 f9 |     ldr   x8, [x20]
 80 86 40 a9 |     ldp   x0, x1, [x20, #8]
 82 8e 41 a9 |     ldp   x2, x3, [x20, #24]
 01 00 00 d4 |     svc   #0
 89 16 40 f9 |     ldr   x9, [x20, #40]
 1f 00 09 eb |     cmp   x0, x9
 6b 00 00 54 |     b.lt  failed
 94 e2 00 91 |     add   x20, x20, #56
 f8 ff ff 17 |     b     next
             | failed:
 e0 03 00 4b |     neg   w0, w0
 89 32 40 b9 |     ldr   w9, [x20, #48]
 60 26 3f 29 |     stp   w0, w9, [x19, #-8]  // the errno, the step
 f4 03 13 aa |     mov   x20, x19
 f3 ff ff 17 |     b     next
"""

MACHINES = {
    "x86_64": Machine(
        _X86_64,
        {
            "chdir": 80,
            "close_range": 436,
            "dup3": 292,
            "execve": 59,
            "exit_group": 231,
            "fcntl": 72,
            "ioctl": 16,
            "read": 0,
            "rt_sigaction": 13,
            "rt_sigprocmask": 14,
            "setsid": 112,
            "umask": 95,
            "write": 1,
        },
    ),
    "aarch64": Machine(
        _AARCH64,
        {
            "chdir": 49,
            "close_range": 436,
            "dup3": 24,
            "execve": 221,
            "exit_group": 94,
            "fcntl": 25,
            "ioctl": 29,
            "read": 63,
            "rt_sigaction": 134,
            "rt_sigprocmask": 135,
            "setsid": 157,
            "umask": 166,
            "write": 64,
        },
    ),
}
