"""Stop, signal and stdin from the caller's side: ask the worker, believe its receipt."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable

from ...model.answers import ControlReceipt, StopReceipt
from ...model.arguments import BytesLike, signal_number, stdin_bytes, terminal_size
from ...model.command import check_timeout
from ...model.errors import ErrorCode, Phase, SupervisorError, invalid
from ...model.identity import identity_of
from ...model.ids import new_id
from ...model.states import OPEN_STATES, RunState
from ...model.view import RunView
from ...process.failpoints import failpoint
from ...runlog.paths import RunPaths
from ..admission.refusals import out_of_reach
from ..reading.lookup import Lookup
from .dial import Dial, dial_patiently, not_confirmed

Message = dict[str, object]

KILL_SECONDS = 15.0  # what a stop allows beyond the grace before it is not confirmed
_TELL_SECONDS = 5.0  # for a worker to make its socket anew, before its evidence is looked at again
_PIECE = 1024 * 1024


class Controller:
    """Sends controls.

    ``wait``: a verb that returns once a run is over.  ``ask_directly``: the worker's answer
    over a channel that the caller holds; None without one.
    """

    def __init__(
        self,
        lookup: Lookup,
        wait: Callable[[str], Awaitable[RunView]],
        ask_directly: Callable[[str, Message, bytes], Awaitable[Message | None]],
    ) -> None:
        self._lookup = lookup
        self._wait = wait
        self._ask_directly = ask_directly

    async def stop(self, run: str, grace: float | None, timeout: float | None) -> StopReceipt:
        check_timeout("grace", grace)
        check_timeout("timeout", timeout)
        seen = await self._own(run)
        if seen.state not in OPEN_STATES:
            return _already(seen)
        own_grace = grace if grace is not None else float(str(seen.limits.get("grace", 0)))
        seconds = timeout if timeout is not None else own_grace + KILL_SECONDS
        control_id = new_id("ctl", os.urandom)
        message: Message = {"op": "stop", "id": control_id}
        if grace is not None:
            message["grace"] = grace
        try:
            async with asyncio.timeout(seconds):
                answer = await self._ask(seen, message, b"", seconds)
                ended = await self._end(seen)
        except TimeoutError:
            raise not_confirmed(seen.id, "the stop", seconds) from None
        if answer is None:
            return _already(ended)
        if ended.state is RunState.QUARANTINED:
            raise not_confirmed(seen.id, "the stop", seconds)
        result, confirmed = str(answer["result"]), _nothing_left(ended)
        return StopReceipt(ended.id, ended.state, control_id, result, confirmed, ended.outcome)

    async def signal(self, run: str, signo: int | str, target: str, timeout: float) -> ControlReceipt:
        signo = signal_number(signo)
        if target not in ("leader", "tree"):
            raise invalid("target", "must be 'leader' or 'tree'")
        message: Message = {"op": "signal", "signal": signo, "target": target}
        receipt = await self._control(run, message, b"", timeout)
        if receipt.result == "no_process":
            raise _not_running(await self._lookup.view(run))
        return receipt

    async def write_stdin(
        self, run: str, data: BytesLike, eof: bool, timeout: float, following: int = 0
    ) -> ControlReceipt:
        whole, written = stdin_bytes(data), 0
        try:
            while written < len(whole):
                piece = whole[written : written + _PIECE]
                rest = len(whole) - written - len(piece) + following
                receipt = await self._write(run, piece, timeout, rest)
                written += len(piece)
            if eof:
                return await self._control(run, {"op": "close_stdin"}, b"", timeout)
            return receipt if whole else await self._write(run, b"", timeout)
        except SupervisorError as error:
            error.details["confirmed"] = written
            raise

    async def _write(self, run: str, piece: bytes, timeout: float, following: int = 0) -> ControlReceipt:
        receipt = await self._control(run, {"op": "stdin", "following": following}, piece, timeout)
        if receipt.result == "over_limit":
            raise invalid("data", "would make its stdin longer than limits.max_stdin_bytes")
        if receipt.result != "written":
            raise _stdin_refused(receipt)
        return receipt

    async def resize(self, run: str, columns: int, rows: int, timeout: float) -> ControlReceipt:
        size = {"columns": terminal_size("columns", columns), "rows": terminal_size("rows", rows)}
        receipt = await self._control(run, {"op": "resize", **size}, b"", timeout)
        if receipt.result == "no_terminal":
            raise _no_terminal(receipt)
        return receipt

    async def dial(self, run: str, seconds: float) -> Dial:
        """A connection of the caller's own.  Raises ``NOT_RUNNING``."""
        seen = await self._own(run)
        row = await self._lookup.row(seen.id)
        dial = None
        if seen.state in OPEN_STATES:
            dial = await self._dial(seen, self._lookup.paths(row), seconds)
        if dial is None:
            raise _not_running(await self._lookup.view(run))
        return dial

    async def tell(self, run: str, op: str, control_id: str) -> None:
        """Return once the worker has answered this control, or the run is over: for as long as it takes."""
        seen = await self._lookup.view(run)
        if seen.state in OPEN_STATES:
            await self._ask(seen, {"op": op, "id": control_id}, b"", _TELL_SECONDS)

    async def _own(self, run: str) -> RunView:
        """The run, which is this directory's own.  Raises ``NOT_RUNNING`` for an imported one."""
        seen = await self._lookup.view(run)
        if seen.imported is not None:
            raise out_of_reach(seen.id, ErrorCode.NOT_RUNNING)
        return seen

    async def _control(self, run: str, message: Message, blob: bytes, timeout: float) -> ControlReceipt:
        check_timeout("timeout", timeout)
        seen = await self._own(run)
        if seen.state not in OPEN_STATES:
            raise _not_running(seen)
        control_id = new_id("ctl", os.urandom)
        try:
            async with asyncio.timeout(timeout):
                answer = await self._ask(seen, {**message, "id": control_id}, blob, timeout)
        except TimeoutError:
            raise not_confirmed(seen.id, str(message["op"]), timeout) from None
        if answer is None or answer["result"] == "not_running":
            raise _not_running(await self._lookup.view(run))
        known = ("type", "id", "op", "result", "seq")
        detail = {name: value for name, value in answer.items() if name not in known}
        op, result = str(message["op"]), str(answer["result"])
        if result == "not_writer":
            raise _writer_busy(seen.id)
        return ControlReceipt(seen.id, control_id, op, result, int(str(answer["seq"])), detail)

    async def _ask(self, seen: RunView, message: Message, blob: bytes, seconds: float) -> Message | None:
        """The worker's receipt; None when the run was over before it could answer."""
        answer = await self._ask_directly(seen.id, message, blob)
        if answer is not None:
            return _receipt(answer)
        row = await self._lookup.row(seen.id)
        paths = self._lookup.paths(row)
        while True:
            dial = await self._dial(seen, paths, seconds)
            if dial is None:
                return None
            try:
                await dial.send(message, blob)
                failpoint("control.sent")
                answer = await dial.receive()
                while answer is not None and answer.get("id") != message["id"]:
                    answer = await dial.receive()
            except OSError:
                answer = None
            finally:
                dial.close()
            if answer is None:
                await asyncio.sleep(0.01)  # its end, or a hang-up: the evidence tells which
                continue
            return _receipt(answer)

    async def _dial(self, seen: RunView, paths: RunPaths, seconds: float) -> Dial | None:
        """Connect, as long as the run is open."""
        while True:
            dial = await dial_patiently(paths, identity_of(seen.worker), min(seconds, 0.25))
            if dial is not None:
                return dial
            seen = await self._lookup.view(seen.id)
            if seen.state not in OPEN_STATES:
                return None

    async def _end(self, seen: RunView) -> RunView:
        try:
            return await self._wait(seen.id)
        except SupervisorError as error:
            if error.code is not ErrorCode.OUTCOME_UNKNOWN:
                raise
            return await self._lookup.view(seen.id)


def _receipt(answer: Message) -> Message:
    if answer.get("type") != "receipt":
        raise invalid("control", "was refused by the worker as malformed")
    return answer


def _already(seen: RunView) -> StopReceipt:
    if seen.state is RunState.QUARANTINED:
        raise _not_running(seen)
    return StopReceipt(seen.id, seen.state, None, "already_ended", _nothing_left(seen), seen.outcome)


def _nothing_left(seen: RunView) -> bool:
    """An end that no worker saw proves nothing about daemons that the program may have left."""
    return seen.evidence is None or seen.evidence.get("may_be_alive") is not True


def _not_running(seen: RunView) -> SupervisorError:
    hints = {
        RunState.QUARANTINED: f"`durable-supervisor resolve {seen.id} --kill` ends what is left of it",
        RunState.QUEUED: "it has no program before there is a slot for it; a stop takes it out of the queue",
    }
    return SupervisorError(
        ErrorCode.NOT_RUNNING,
        f"run {seen.id} is {seen.state.value}"
        + (f" ({seen.reason})" if seen.reason and seen.outcome is None else ""),
        phase=Phase.CONTROL,
        hint=hints.get(seen.state, "it is over; `inspect` shows how it ended"),
        details={"run_id": seen.id, "state": seen.state.value},
    )


def _writer_busy(run_id: str) -> SupervisorError:
    return SupervisorError(
        ErrorCode.WRITER_BUSY,
        f"an attached terminal has the input of run {run_id}",
        phase=Phase.CONTROL,
        retryable=True,
        hint=f"wait until it detaches, or take over with `durable-supervisor attach {run_id} --steal`",
        details={"run_id": run_id},
    )


def _no_terminal(receipt: ControlReceipt) -> SupervisorError:
    return invalid("run", f"{receipt.run_id} has no terminal to resize", "start it with pty=Terminal(...)")


def _stdin_refused(receipt: ControlReceipt) -> SupervisorError:
    busy = receipt.result == "busy"
    return SupervisorError(
        ErrorCode.BUSY if busy else ErrorCode.STDIN_CLOSED,
        "the program does not read its stdin fast enough" if busy else "the program's stdin is closed",
        phase=Phase.CONTROL,
        retryable=busy,
        hint="write less at once" if busy else "start the run with stdin='open' to write to it later",
        details={"run_id": receipt.run_id, "bytes": receipt.detail.get("bytes", 0)},
    )
