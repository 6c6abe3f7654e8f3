"""The machine code that puts a process's memory upon an image, for each machine that has been tried.

It is one function, ``merge(rows)``, which goes through rows of four words of 64 bits:

    address, length, descriptor of the image, offset in it

Of each it maps the image privately, somewhere; copies there every piece of 4 KiB that is different; and moves
the mapping to the address.  So each byte stays what it is, while pages that are the image's are everybody's.
It answers with how many rows that was done.  A row that is not mapped as a whole, or for which the kernel
refuses a step, stays as it is.  Should the last step have failed halfway, the memory is gone: then the
process ends at once, as one that the kernel kills.

A row whose descriptor is inverted (``~fd``, which is negative) is written to the image instead.

The last row has length 0, and tells what to wait for once anything was merged, so that the process writes to
nothing in between.  With the descriptor -1 it waits for nothing.

    milliseconds, 0, descriptor of an epoll, address of the signal mask meanwhile

Nothing else may run in the process meanwhile.  The rows may be among the memory, the stack may not.
"""

from __future__ import annotations

from ..machine_code import assembled

_X86_64 = """
                      | merge:
 53                   |     push   rbx
 55                   |     push   rbp
 41 54                |     push   r12
 41 55                |     push   r13
 41 56                |     push   r14
 48 89 fb             |     mov    rbx, rdi               # rbx: the current row
 31 ed                |     xor    ebp, ebp               # ebp: how many are done
                      | next:
 4c 8b 23             |     mov    r12, [rbx]             # r12: the address
 4c 8b 6b 08          |     mov    r13, [rbx+8]           # r13: the length
 4c 8b 43 10          |     mov    r8, [rbx+16]           # r8: the descriptor
 4d 85 ed             |     test   r13, r13
 0f 84 bb 00 00 00    |     jz     done
 4d 85 c0             |     test   r8, r8
 0f 88 92 00 00 00    |     js     fill
 4c 89 e7             |     mov    rdi, r12
 4c 89 ee             |     mov    rsi, r13
 ba 01 00 00 00       |     mov    edx, 1                 # MS_ASYNC
 b8 1a 00 00 00       |     mov    eax, 26                # msync: fails where something is not mapped
 0f 05                |     syscall
 48 85 c0             |     test   rax, rax
 75 72                |     jnz    skip
 31 ff                |     xor    edi, edi
 ba 03 00 00 00       |     mov    edx, 3                 # PROT_READ | PROT_WRITE
 41 ba 02 00 00 00    |     mov    r10d, 2                # MAP_PRIVATE
 4c 8b 4b 18          |     mov    r9, [rbx+24]
 b8 09 00 00 00       |     mov    eax, 9                 # mmap
 0f 05                |     syscall
 48 3d 01 f0 ff ff    |     cmp    rax, -4095
 73 52                |     jae    skip
 49 89 c6             |     mov    r14, rax               # r14: the image's
 4c 89 e6             |     mov    rsi, r12
 48 89 c7             |     mov    rdi, rax
 4f 8d 0c 2c          |     lea    r9, [r12+r13]          # r9: the end
                      | piece:
 b9 00 02 00 00       |     mov    ecx, 512
 f3 48 a7             |     repe   cmpsq
 74 16                |     je     same
 48 8d 0c cd 00 f0 ff |     lea    rcx, [rcx*8-4096]      # back to its beginning
 ff                   |
 48 01 ce             |     add    rsi, rcx
 48 01 cf             |     add    rdi, rcx
 b9 00 02 00 00       |     mov    ecx, 512
 f3 48 a5             |     rep    movsq
                      | same:
 4c 39 ce             |     cmp    rsi, r9
 72 db                |     jb     piece
 4c 89 f7             |     mov    rdi, r14
 4c 89 ee             |     mov    rsi, r13
 4c 89 ea             |     mov    rdx, r13
 41 ba 03 00 00 00    |     mov    r10d, 3                # MREMAP_MAYMOVE | MREMAP_FIXED
 4d 89 e0             |     mov    r8, r12
 b8 19 00 00 00       |     mov    eax, 25                # mremap
 0f 05                |     syscall
 4c 39 e0             |     cmp    rax, r12
 75 66                |     jne    refused
 ff c5                |     inc    ebp
                      | skip:
 48 83 c3 20          |     add    rbx, 32
 e9 51 ff ff ff       |     jmp    next
                      | fill:
 4c 89 c7             |     mov    rdi, r8
 48 f7 d7             |     not    rdi
 4c 89 e6             |     mov    rsi, r12
 4c 89 ea             |     mov    rdx, r13
 4c 8b 53 18          |     mov    r10, [rbx+24]
 b8 12 00 00 00       |     mov    eax, 18                # pwrite64
 0f 05                |     syscall
 4c 39 e8             |     cmp    rax, r13
 75 db                |     jne    skip
 ff c5                |     inc    ebp
 eb d7                |     jmp    skip
                      | done:
 85 ed                |     test   ebp, ebp
 74 2c                |     jz     back
 4d 85 c0             |     test   r8, r8
 78 27                |     js     back
 48 83 ec 10          |     sub    rsp, 16                # for an event, of which nobody reads
 4c 89 c7             |     mov    rdi, r8
 48 89 e6             |     mov    rsi, rsp
 ba 01 00 00 00       |     mov    edx, 1
 4d 89 e2             |     mov    r10, r12               # the milliseconds
 4c 8b 43 18          |     mov    r8, [rbx+24]           # the signal mask
 41 b9 08 00 00 00    |     mov    r9d, 8
 b8 19 01 00 00       |     mov    eax, 281               # epoll_pwait
 0f 05                |     syscall
 48 83 c4 10          |     add    rsp, 16
                      | back:
 89 e8                |     mov    eax, ebp
 41 5e                |     pop    r14
 41 5d                |     pop    r13
 41 5c                |     pop    r12
 5d                   |     pop    rbp
 5b                   |     pop    rbx
 c3                   |     ret
                      | refused:                          # is all where it was?
 4c 89 e7             |     mov    rdi, r12
 4c 89 ee             |     mov    rsi, r13
 ba 01 00 00 00       |     mov    edx, 1
 b8 1a 00 00 00       |     mov    eax, 26
 0f 05                |     syscall
 48 85 c0             |     test   rax, rax
 75 12                |     jnz    lost
 4c 89 f7             |     mov    rdi, r14
 4c 89 ee             |     mov    rsi, r13
 b8 0b 00 00 00       |     mov    eax, 11                # munmap
 0f 05                |     syscall
 e9 73 ff ff ff       |     jmp    skip
                      | lost:
 bf 01 00 00 00       |     mov    edi, 1
 b8 e7 00 00 00       |     mov    eax, 231               # exit_group
 0f 05                |     syscall
"""

_AARCH64 = """
             | merge:
 e9 03 00 aa |     mov   x9, x0               // x9: the current row
 0a 00 80 d2 |     mov   x10, #0              // x10: how many are done
             | next:
 2b 31 40 a9 |     ldp   x11, x12, [x9]       // x11: the address, x12: the length
 24 15 41 a9 |     ldp   x4, x5, [x9, #16]    // x4: the descriptor, x5: the offset
 ac 07 00 b4 |     cbz   x12, done
 44 06 f8 b7 |     tbnz  x4, #63, fill
 e0 03 0b aa |     mov   x0, x11
 e1 03 0c aa |     mov   x1, x12
 22 00 80 d2 |     mov   x2, #1               // MS_ASYNC
 68 1c 80 d2 |     mov   x8, #227             // msync: fails where something is not mapped
 01 00 00 d4 |     svc   #0
 40 05 00 b5 |     cbnz  x0, skip
 e1 03 0c aa |     mov   x1, x12
 62 00 80 d2 |     mov   x2, #3               // PROT_READ | PROT_WRITE
 43 00 80 d2 |     mov   x3, #2               // MAP_PRIVATE
 c8 1b 80 d2 |     mov   x8, #222             // mmap
 01 00 00 d4 |     svc   #0
 1f fc 3f b1 |     cmn   x0, #4095
 62 04 00 54 |     b.hs  skip
 ed 03 00 aa |     mov   x13, x0              // x13: the image's
 6e 01 0c 8b |     add   x14, x11, x12        // x14: the end
 e1 03 0b aa |     mov   x1, x11
 e2 03 0d aa |     mov   x2, x13
             | piece:
 2f 04 40 91 |     add   x15, x1, #4096
 e3 03 01 aa |     mov   x3, x1
 e4 03 02 aa |     mov   x4, x2
             | compare:
 65 18 c1 a8 |     ldp   x5, x6, [x3], #16
 87 40 c1 a8 |     ldp   x7, x16, [x4], #16
 bf 00 07 eb |     cmp   x5, x7
 c0 00 50 fa |     ccmp  x6, x16, #0, eq
 81 00 00 54 |     b.ne  copy
 7f 00 0f eb |     cmp   x3, x15
 43 ff ff 54 |     b.lo  compare
 06 00 00 14 |     b     same
             | copy:
 25 18 c1 a8 |     ldp   x5, x6, [x1], #16
 45 18 81 a8 |     stp   x5, x6, [x2], #16
 3f 00 0f eb |     cmp   x1, x15
 a3 ff ff 54 |     b.lo  copy
 03 00 00 14 |     b     step
             | same:
 e1 03 03 aa |     mov   x1, x3
 e2 03 04 aa |     mov   x2, x4
             | step:
 3f 00 0e eb |     cmp   x1, x14
 a3 fd ff 54 |     b.lo  piece
 e0 03 0d aa |     mov   x0, x13
 e1 03 0c aa |     mov   x1, x12
 e2 03 0c aa |     mov   x2, x12
 63 00 80 d2 |     mov   x3, #3               // MREMAP_MAYMOVE | MREMAP_FIXED
 e4 03 0b aa |     mov   x4, x11
 08 1b 80 d2 |     mov   x8, #216             // mremap
 01 00 00 d4 |     svc   #0
 1f 00 0b eb |     cmp   x0, x11
 81 03 00 54 |     b.ne  refused
 4a 05 00 91 |     add   x10, x10, #1
             | skip:
 29 81 00 91 |     add   x9, x9, #32
 cc ff ff 17 |     b     next
             | fill:
 e0 03 24 aa |     mvn   x0, x4
 e1 03 0b aa |     mov   x1, x11
 e2 03 0c aa |     mov   x2, x12
 e3 03 05 aa |     mov   x3, x5
 88 08 80 d2 |     mov   x8, #68              // pwrite64
 01 00 00 d4 |     svc   #0
 1f 00 0c eb |     cmp   x0, x12
 e1 fe ff 54 |     b.ne  skip
 4a 05 00 91 |     add   x10, x10, #1
 f5 ff ff 17 |     b     skip
             | done:
 8a 01 00 b4 |     cbz   x10, back
 64 01 f8 b7 |     tbnz  x4, #63, back
 ff 43 00 d1 |     sub   sp, sp, #16          // for an event, of which nobody reads
 e0 03 04 aa |     mov   x0, x4
 e1 03 00 91 |     mov   x1, sp
 22 00 80 d2 |     mov   x2, #1
 e3 03 0b aa |     mov   x3, x11              // the milliseconds
 e4 03 05 aa |     mov   x4, x5               // the signal mask
 05 01 80 d2 |     mov   x5, #8
 c8 02 80 d2 |     mov   x8, #22              // epoll_pwait
 01 00 00 d4 |     svc   #0
 ff 43 00 91 |     add   sp, sp, #16
             | back:
 e0 03 0a aa |     mov   x0, x10
 c0 03 5f d6 |     ret
             | refused:                       // is all where it was?
 e0 03 0b aa |     mov   x0, x11
 e1 03 0c aa |     mov   x1, x12
 22 00 80 d2 |     mov   x2, #1
 68 1c 80 d2 |     mov   x8, #227
 01 00 00 d4 |     svc   #0
 c0 00 00 b5 |     cbnz  x0, lost
 e0 03 0d aa |     mov   x0, x13
 e1 03 0c aa |     mov   x1, x12
 e8 1a 80 d2 |     mov   x8, #215             // munmap
 01 00 00 d4 |     svc   #0
 dc ff ff 17 |     b     skip
             | lost:
 20 00 80 d2 |     mov   x0, #1
 c8 0b 80 d2 |     mov   x8, #94              // exit_group
 01 00 00 d4 |     svc   #0
"""

LISTINGS = {"x86_64": _X86_64, "aarch64": _AARCH64}


def for_machine(name: str) -> bytes | None:
    """As uname(2) has the name.  None: nobody has tried."""
    listing = LISTINGS.get(name)
    return None if listing is None else assembled(listing)
