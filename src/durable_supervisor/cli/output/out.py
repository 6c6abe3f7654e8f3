"""Writing to the two streams: documents, lines, raw bytes.

Everything goes straight to the descriptor: nothing is left to flush at exit, a
closed pipe is noticed at once, and a writer stuck on a full pipe holds no lock
that the end of the interpreter would wait for.

JSON is ASCII on purpose: no byte of a program's output reaches a terminal as
itself, and lone surrogates (undecodable names) stay valid JSON.
"""

from __future__ import annotations

import io
import json
import os
import select
from collections.abc import Mapping
from contextlib import suppress

from durable_supervisor.model.errors import ErrorCode, SupervisorError

from .streams import STDERR as STDERR  # offered here, beside what writes to them
from .streams import STDOUT as STDOUT

_PIPE_ROOM = 4096  # a pipe that poll(2) calls writable takes this much without blocking (PIPE_BUF)


def document(form: Mapping[str, object]) -> None:
    """One JSON document; indented for a person, one line for a pipe."""
    write_text(json.dumps(form, indent=2 if is_terminal(STDOUT) else None, allow_nan=False) + "\n")


def ndjson(form: Mapping[str, object]) -> None:
    """One line of newline-delimited JSON."""
    write_bytes(json.dumps(form, allow_nan=False, separators=(",", ":")).encode("ascii") + b"\n")


def line(text: str) -> None:
    """A line on stdout.  The caller escapes what came from a program."""
    write_text(text + "\n")


def note(text: str) -> None:
    """A remark for a person, on stderr, never mixed into data."""
    write_text(text + "\n", STDERR)


def write_text(text: str, descriptor: int = STDOUT) -> None:
    """Text as it is, without a newline of its own."""
    write_bytes(encode(text), descriptor)


def encode(text: str) -> bytes:
    """UTF-8, whatever the locale; what cannot be encoded becomes a visible escape."""
    return text.encode("utf-8", "backslashreplace")


def write_bytes(data: bytes, descriptor: int = STDOUT) -> None:
    """All of the bytes, as they are.  Raises BrokenPipeError when the reader is gone."""
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[os.write(descriptor, rest) :]
        except BlockingIOError:  # someone who shares the terminal made it non-blocking
            select.select([], [descriptor], [])
        except BrokenPipeError:
            raise
        except OSError as error:
            raise _cannot_write(descriptor, error) from error


async def write_patiently(data: bytes, descriptor: int = STDOUT) -> None:
    """As `write_bytes`, but a reader that does not read never holds up the event loop (Ctrl-C!)."""
    # Of a terminal poll(2) tells neither how much it takes nor that somebody else is stuck in a write to it.
    if len(data) <= _PIPE_ROOM and not is_terminal(descriptor) and ready(descriptor):
        write_bytes(data, descriptor)
        return
    import asyncio

    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()

    def settle(error: BaseException | None) -> None:
        if done.cancelled():
            return
        if error is None:
            done.set_result(None)
        else:
            done.set_exception(error)

    def work() -> None:
        error: BaseException | None = None
        try:
            write_bytes(data, descriptor)
        except (OSError, SupervisorError) as caught:
            error = caught
        try:
            loop.call_soon_threadsafe(settle, error)
        except RuntimeError:
            return  # the loop is gone: the command was interrupted while the pipe was full

    import threading

    # A daemon thread, not the pool: asyncio.run would wait for the pool's threads at its end.
    threading.Thread(target=work, daemon=True).start()
    await done


async def note_patiently(text: str) -> None:
    """As `note`, by `write_patiently`; where nobody can hear it, it is left unsaid."""
    with suppress(OSError, SupervisorError):
        await write_patiently(encode(text + "\n"), STDERR)


class Direct(io.TextIOBase):
    """sys.stdout for who writes to nothing else (typer): nothing is left for the interpreter's end."""

    def write(self, text: str) -> int:
        """All of it, now."""
        write_text(text)
        return len(text)


def is_terminal(descriptor: int) -> bool:
    """False also for a descriptor that is closed."""
    try:
        return os.isatty(descriptor)
    except OSError:
        return False


def _cannot_write(descriptor: int, error: OSError) -> SupervisorError:
    return SupervisorError(
        ErrorCode.INTERNAL,
        f"cannot write to {'stdout' if descriptor == STDOUT else 'stderr'}: {error.strerror}",
        hint="runs are not affected; check where the output goes",
        details={"errno": error.errno},
    )


def ready(descriptor: int) -> bool:
    """Will a short write not block?"""
    # poll, not select: a descriptor may be above 1023.  Regular files are always ready.
    poller = select.poll()
    poller.register(descriptor, select.POLLOUT)
    return bool(poller.poll(0))
