"""``stop``, ``signal``, ``write-stdin``: what may be asked of a live run, by anyone of its user."""

from __future__ import annotations

import os
import signal as signals
from typing import TYPE_CHECKING, Annotated, Any

from durable_supervisor.model.errors import invalid

from ..opening.session import drive, observing
from ..options import parse
from ..options.declared import Argument, Option, one_of
from ..options.shared import Call, Json, RunId, Settings, SocketPath, StateDir, settings
from ..output import exit_codes, out
from ..output.describe import state_word

if TYPE_CHECKING:
    from collections.abc import Iterator

    from durable_supervisor.model.answers import ControlReceipt

_CHUNK = 64 * 1024
_Grace = Annotated[
    str | None,
    Option("--grace", metavar="TIME", help="Time between TERM and KILL [default: the run's own]."),
]
_Timeout = Annotated[
    str | None, Option("--timeout", metavar="TIME", help="Longest wait for the confirmation.")
]
_Signal = Annotated[
    str,
    Argument(
        metavar="SIGNAL",
        help="A name or a number: TERM, USR1, 9.",
        complete=one_of(*sorted(one.name.removeprefix("SIG") for one in signals.Signals)),
    ),
]
_Data = Annotated[str | None, Argument(metavar="[FILE|-]", help="Bytes to write [default: our stdin].")]
_Eof = Annotated[bool, Option("--eof", help="Close the program's stdin; alone, write nothing.")]


def stop(
    call: Call,
    run: RunId,
    grace: _Grace = None,
    timeout: _Timeout = None,
    json: Json = False,
    state_dir: StateDir = None,
    socket: SocketPath = None,
) -> int:
    """Stop a run and its whole tree: TERM, a grace, then KILL.

    Waits until it is over. Stopping a run that is over already is no error and changes nothing.

    \b
    Example:
      dsup stop 4f7k --grace 30
    """
    shared = settings(call, json, state_dir, socket)
    period = parse.positive_seconds("grace", grace)
    return drive(_stop(shared, run, period, parse.positive_seconds("timeout", timeout)))


async def _stop(shared: Settings, run: str, grace: float | None, timeout: float | None) -> int:
    async with observing(shared) as observer:
        receipt = await observer.stop(run, grace=grace, timeout=timeout)
    form = receipt.to_dict()
    # It began the ladder, which is over by now, or was there before the program: the state says how.
    ours = receipt.result in ("stopping", "not_started")
    how = "" if ours else f", {receipt.result.replace('_', ' ')}"
    if not receipt.confirmed:
        how += "; something of it may still be alive"
    _tell(shared, form, f"{receipt.run_id}  {state_word(form)}{how}")
    return exit_codes.OK if receipt.confirmed else exit_codes.FAILED


def signal(
    call: Call,
    run: RunId,
    name: _Signal,
    json: Json = False,
    state_dir: StateDir = None,
    socket: SocketPath = None,
) -> int:
    """Send a signal to a run's program (its leader).

    \b
    Example:
      dsup signal 4f7k USR1
    """
    shared = settings(call, json, state_dir, socket)
    return drive(_signal(shared, run, parse.signal_number(name)))


async def _signal(shared: Settings, run: str, number: int) -> int:
    async with observing(shared) as observer:
        receipt = await observer.signal(run, number)
    _tell(shared, _control(receipt), f"signal {number}: {receipt.result}")
    return exit_codes.OK


def write_stdin(
    call: Call,
    run: RunId,
    data: _Data = None,
    eof: _Eof = False,
    json: Json = False,
    state_dir: StateDir = None,
    socket: SocketPath = None,
) -> int:
    """Write to the stdin of a run started with --stdin open.

    \b
    Example:
      echo yes | dsup write-stdin 4f7k
      dsup write-stdin 4f7k --eof
    """
    shared = settings(call, json, state_dir, socket)
    if data not in (None, "-"):
        # A file that cannot be opened must be refused before the first byte goes out.
        chunks = iter([parse.read_file("data", str(data))])
    elif data is None and eof:
        chunks = iter([b""])
    else:
        if data is None and out.is_terminal(0):
            raise invalid("data", "comes from a terminal", "pipe it in, name a file, or give - to type it")
        chunks = _our_stdin()
    return drive(_write(shared, run, chunks, eof=eof))


def _our_stdin() -> Iterator[bytes]:
    while chunk := os.read(0, _CHUNK):
        yield chunk


async def _write(shared: Settings, run: str, chunks: Iterator[bytes], *, eof: bool) -> int:
    written, receipt = 0, None
    async with observing(shared) as observer:
        for data in chunks:
            if data:
                receipt = await observer.write_stdin(run, data)
                written += len(data)
        if eof or receipt is None:  # nothing to write is no reason to believe in the run
            receipt = await observer.write_stdin(run, b"", eof=eof)
    form: dict[str, Any] = {
        "schema": "durable-supervisor/write-stdin/1",
        "run_id": receipt.run_id,
        "bytes": written,
        "eof": eof,
    }
    _tell(shared, form, f"{written} bytes written" + (", stdin closed" if eof else ""))
    return exit_codes.OK


def _control(receipt: ControlReceipt) -> dict[str, Any]:
    return {"schema": "durable-supervisor/control/1", **receipt.to_dict()}


def _tell(shared: Settings, form: dict[str, Any], words: str) -> None:
    if shared.json:
        out.document(form)
    else:
        out.line(words)
