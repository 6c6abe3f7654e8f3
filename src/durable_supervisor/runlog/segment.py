"""One segment being written: batch, write, keep a reserve, seal.

Output is only ever written into blocks that are reserved already, with
`RESERVE` bytes more behind them.  So a full disk is noticed before a write, no
record is torn by it, and lifecycle records still have room.

To reserve blocks and to give them back costs a short run 0.1 ms, and as a rule it needs none: until there is
output, or the run lasts, what the block of its end has left will do, where that is enough for its last words.
"""

from __future__ import annotations

import errno
import os

from .alloc import reserve
from .files import write_all
from .format import OUTPUT, RECORD_SIZE, encode_record
from .paths import SegmentKey

RESERVE = 16 * 1024
_LAST_WORDS = 1536  # an exit, a receipt of usual size and the mark behind it take two thirds
_MARK = 128
_OVERHEAD = RECORD_SIZE + 64  # of an output record, at most
_STEP_MIN = 64 * 1024
_STEP_MAX = 1024 * 1024
_ANY_SIZE = 1 << 62

Pending = tuple[int, int, int, int, int, bytes, bytes]
"""type, flags, seq, wall ns, elapsed ns, meta, data"""


class SegmentFile:
    """``end``: file offset behind the last written record.  ``key`` names the file; ``salt`` seeds CRCs."""

    __slots__ = (
        "_allocated",
        "_behind",
        "_reserved",
        "_start",
        "end",
        "fd",
        "key",
        "lasting",
        "pending",
        "pending_bytes",
        "records",
        "salt",
        "target",
    )

    def __init__(self, fd: int, key: SegmentKey, salt: int, start: int, end: int) -> None:
        self.fd = fd
        self.key = key
        self.salt = salt
        self._start = start  # the header's length: it does not count as content
        self.end = end
        self._allocated = end
        self._behind = RESERVE  # bytes that are kept for what comes later
        self._reserved = False  # there may be blocks to give back
        self.pending: list[Pending] = []
        self.pending_bytes = 0
        self.records = 0
        self.target = _ANY_SIZE  # where it will probably end: nothing is reserved far beyond
        self.lasting = False  # holds a record that must never be lost: more than output

    @property
    def size(self) -> int:
        """Bytes of records, pending ones included."""
        return self.end + self.pending_bytes - self._start

    def put(
        self, rtype: int, flags: int, seq: int, wall_ns: int, elapsed_ns: int, meta: bytes, data: bytes
    ) -> None:
        """Add a record to the batch.  ``data`` is not copied: it must not change before `flush`."""
        self.pending.append((rtype, flags, seq, wall_ns, elapsed_ns, meta, data))
        self.pending_bytes += RECORD_SIZE + len(meta) + len(data)
        self.records += 1

    def room(self, size: int) -> bool:
        """Is there reserved space for ``size`` bytes of output, and the reserve behind it?"""
        need = self.end + self.pending_bytes + size + _OVERHEAD + RESERVE
        if need <= self._allocated:
            return True
        self._behind = RESERVE
        return self._grow(need)

    def spare_blocks(self, block: int) -> None:
        """Do for now with what the last of its blocks, each of so many bytes, has left, if that is enough."""
        self._allocated = self.end + -self.end % block
        self._behind = _LAST_WORDS
        self.keep_reserve()

    def keep_whole_reserve(self) -> bool:
        """From now on; False when the disk is full."""
        self._behind = RESERVE
        return self.keep_reserve()

    def nothing_follows(self) -> None:
        """What is batched are its last words: room is kept for their mark alone."""
        self._behind = _MARK

    def keep_reserve(self) -> bool:
        """Have the reserve behind all that is batched; False when the disk is full."""
        need = self.end + self.pending_bytes + self._behind
        if need <= self._allocated:
            return True
        # Where a block's rest is not enough it is no longer a short log: then all that others keep is kept.
        return self.keep_whole_reserve() if self._behind == _LAST_WORDS else self._grow(need)

    def _grow(self, need: int) -> bool:
        step = min(_STEP_MAX, max(_STEP_MIN, self.end), max(self.target + RESERVE - need, 0))
        for extra in (step, 0):
            try:
                length = need + extra - self._allocated
                self._allocated = need + extra if reserve(self.fd, self._allocated, length) else _ANY_SIZE
                self._reserved = True
                return True
            except OSError:
                continue
        return False

    def flush(self) -> None:
        """Write the batch.  Raises OSError; then `pending` is what is not written, and the file ends
        with a whole record."""
        if not self.pending:
            return
        self.keep_reserve()
        buffers: list[bytes] = []
        ends: list[int] = []
        at, salt = self.end, self.salt
        for rtype, flags, seq, wall_ns, elapsed_ns, meta, data in self.pending:
            head = encode_record(salt, at, rtype, flags, seq, wall_ns, elapsed_ns, meta, data)
            buffers.append(head)
            at += len(head)
            if data:
                buffers.append(data)
                at += len(data)
            ends.append(at)
        written, number = write_all(self.fd, buffers, self.end, at - self.end)
        if number == 0:
            self.end = at
            self.pending.clear()
            self.pending_bytes = 0
            return
        self._keep_whole(self.end + written, ends)
        raise OSError(number, os.strerror(number))

    def _keep_whole(self, reached: int, ends: list[int]) -> None:
        whole = sum(1 for end in ends if end <= reached)
        if whole:
            self.pending_bytes -= ends[whole - 1] - self.end
            self.end = ends[whole - 1]
            del self.pending[:whole]
        if reached > self.end:
            # Bytes that never were a record; what is written next may be shorter than they are.
            os.ftruncate(self.fd, self.end)
            self._allocated = min(self._allocated, self.end) if self._allocated != _ANY_SIZE else _ANY_SIZE

    def outputs_pending(self) -> bool:
        return any(record[0] == OUTPUT for record in self.pending)

    def replace_pending(self, records: list[Pending]) -> None:
        self.pending = records
        self.pending_bytes = sum(RECORD_SIZE + len(record[5]) + len(record[6]) for record in records)

    def trim(self, *, exact: bool = True) -> None:
        """Give back what is reserved beyond the end; a small part may stay when ``exact`` is false."""
        spare = self._allocated - self.end
        ours = self._reserved and self._allocated != _ANY_SIZE
        if ours and spare > (0 if exact else self.end // 8):
            try:
                os.ftruncate(self.fd, self.end)
            except OSError as problem:
                if problem.errno == errno.EBADF:
                    raise
            self._allocated = self.end
            self._reserved = False
