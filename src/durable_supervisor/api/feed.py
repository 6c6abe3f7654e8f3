"""What a program reads from its stdin, written while it runs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Final

from ..model.arguments import BytesLike, stdin_bytes
from ..model.command import MAX_SECONDS
from ..model.errors import ErrorCode, SupervisorError, invalid
from ..model.events import Kind
from .asked import Input
from .verbs import Verbs

_PIECE: Final = 256 * 1024
# The program wants no more of it: that is no failure of anybody's.
_ENOUGH: Final = (ErrorCode.STDIN_CLOSED, ErrorCode.NOT_RUNNING)


async def feed(verbs: Verbs, run_id: str, given: Input, most: int | None) -> None:
    """Write all of it, then close.  Returns as well when the program takes no more.

    Raises ``INVALID_REQUEST`` for more than ``most`` bytes, and what ``given`` raises.
    """
    fed = 0
    try:
        async for piece in _pieces(given):
            fed += len(piece)
            if most is not None and fed > most:
                raise invalid("input", f"is longer than max_stdin_bytes, which is {most}")
            # It may take as long as the program does: its deadline ends that.
            await verbs.write_stdin(run_id, piece, timeout=MAX_SECONDS)
        await verbs.write_stdin(run_id, b"", eof=True, timeout=MAX_SECONDS)
    except SupervisorError as error:
        if error.code not in _ENOUGH:
            raise


async def released(verbs: Verbs, run_id: str) -> None:
    """Return once its program runs, which a queued one's does not, or never will."""
    async with aclosing(verbs.follow(run_id, kinds={Kind.PROGRAM_RELEASED})) as events:
        async for _ in events:
            return


async def _pieces(given: Input) -> AsyncIterator[bytes]:
    if not isinstance(given, BytesLike):
        async for item in given:
            async for piece in _pieces(stdin_bytes(item, "input")):
                yield piece
        return
    view = memoryview(given).cast("B")
    for begin in range(0, len(view), _PIECE):
        yield bytes(view[begin : begin + _PIECE])
