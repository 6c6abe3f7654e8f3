"""Which memory may lie upon an image: decided from ``/proc/self/maps``, as proc(5) describes it.  Pure."""

from __future__ import annotations

Region = tuple[int, int]  # first byte, and the one behind the last: whole pages

# There is little to share in small ones, and each costs the kernel a mapping.
SMALLEST = 64 * 1024
_WRITABLE = b" rw-p "
_STACK = b"[stack]"


def mergeable(maps: bytes | bytearray, thread: int) -> list[Region]:
    """Private and writable: the interpreter's heaps and static data, in order, as far as lines are whole.

    Left out are the stack, which is in use meanwhile, and what contains the address ``thread``: the C
    library's block of the thread, into which the kernel may write at any time (rseq(2)).
    """
    found = []
    at = -1
    # Without a list of lines, which would leave its traces on pages that workers have alike.
    while (at := maps.find(_WRITABLE, at + 1)) >= 0 and (line_end := maps.find(b"\n", at)) >= 0:
        first, _, end = maps[maps.rfind(b"\n", 0, at) + 1 : at].partition(b"-")
        if b" " in end or maps.endswith(_STACK, at, line_end):
            continue  # the first: it was part of a file's name
        region = (int(first, 16), int(end, 16))
        if region[1] - region[0] >= SMALLEST and not region[0] <= thread < region[1]:
            found.append(region)
    return found


def common(ours: list[Region], region: Region) -> list[Region]:
    """What is in ``region`` and in one of ours, where that is not too small."""
    both = [(max(first, region[0]), min(end, region[1])) for first, end in ours]
    return [one for one in both if one[1] - one[0] >= SMALLEST]
