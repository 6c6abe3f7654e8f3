"""What a call that waits for its run answers with: how it ended, and what it printed."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from typing import Any, cast

from .axis import AxisReport, all_axes
from .enforcement import FULL
from .errors import ErrorCode, Phase, SupervisorError
from .outcome import Outcome, OutcomeKind
from .tokens import redact_tokens

TAIL_BYTES = 2048  # of stderr, in an error
_GLIMPSE_CHARACTERS = 200  # of an output, where a result or its error is shown in a line
_STREAMS = ("stdout", "stderr")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """One run that is over.  Technical facts only: whether it did its work is the caller's word.

    ``reason`` says why it ended; ``exit_code`` or ``signal`` how, as the kernel told it: a program that
    was stopped and left with 0 is ``cancelled`` with exit code 0.  Both are None where nothing was ever
    executed: a call that was cancelled before its start (then ``run_id`` may be None, too).

    ``stdout`` and ``stderr`` are what is kept, secrets redacted; ``stdout_bytes`` is how much the
    program wrote, ``stdout_dropped`` how much of that is not kept.  ``output_incomplete``: a pipe never
    came to its end, because something held it open, or nobody saw how it ended.  ``duration`` is
    monotonic seconds from the release to the end of the whole tree.  ``enforcement``: for each axis
    ``requested``, ``applied``, ``mechanism``, ``reason``.  ``survivors`` are identities of what could
    not be ended.  ``stop``: why and how it was stopped, None when nobody did.  ``cancel_reason`` is what the
    call's token was cancelled with; it is nowhere stored.
    """

    run_id: str | None
    reason: OutcomeKind
    exit_code: int | None = None
    signal: int | None = None
    stdout: bytes = field(default=b"", repr=False)
    stderr: bytes = field(default=b"", repr=False)
    stdout_bytes: int = 0
    stderr_bytes: int = 0
    stdout_dropped: int = 0
    stderr_dropped: int = 0
    output_incomplete: bool = False
    stdin_bytes: int = 0
    executable: str | None = None
    canonical_executable: str | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    duration: float = 0.0
    enforcement: Mapping[str, AxisReport] = field(default_factory=dict, repr=False, hash=False)
    survivors: tuple[Mapping[str, object], ...] = field(default=(), hash=False)
    stop: Mapping[str, object] | None = field(default=None, hash=False)
    cancel_reason: str | None = None

    def __repr__(self) -> str:
        """With the ends of the outputs: it is what a failed assertion shows."""
        shown = {one.name: getattr(self, one.name) for one in fields(self) if one.repr}
        shown |= {f"{name}_tail": tail for name in _STREAMS if (tail := _glimpse(getattr(self, name)))}
        return f"RunResult({', '.join(f'{name}={value!r}' for name, value in shown.items())})"

    @property
    def success(self) -> bool:
        """Did it end by itself, with exit code 0?"""
        return self.reason is OutcomeKind.EXITED and self.exit_code == 0

    @property
    def outcome(self) -> Outcome | None:
        """The same as the run's; None where nothing was executed."""
        if self.exit_code is None and self.signal is None:
            return None
        return Outcome(self.reason, self.exit_code, self.signal)

    @property
    def truncated(self) -> bool:
        """Is something of its output not kept?"""
        return bool(self.stdout_dropped or self.stderr_dropped)

    @property
    def unenforced(self) -> dict[str, AxisReport]:
        """The axes of which something was asked for that was not applied in full; ``reason`` says why."""
        return {
            axis: report
            for axis, report in self.enforcement.items()
            if report["requested"] is not None and report["applied"] != FULL
        }

    def stdout_text(self, encoding: str = "utf-8", errors: str = "replace") -> str:
        return self.stdout.decode(encoding, errors)

    def stderr_text(self, encoding: str = "utf-8", errors: str = "replace") -> str:
        return self.stderr.decode(encoding, errors)

    def check(self) -> RunResult:
        """The result itself; raises `RunFailedError` unless it is a `success`."""
        if not self.success:
            raise RunFailedError(self)
        return self

    def to_dict(self) -> dict[str, object]:
        """The JSON form; see ``docs/run.md``."""
        return {
            "run_id": self.run_id,
            "reason": self.reason.value,
            "exit_code": self.exit_code,
            "signal": self.signal,
            "success": self.success,
            "stdout": _stream_form(self.stdout, self.stdout_bytes, self.stdout_dropped),
            "stderr": _stream_form(self.stderr, self.stderr_bytes, self.stderr_dropped),
            "output_incomplete": self.output_incomplete,
            "stdin_bytes": self.stdin_bytes,
            "executable": {"requested": self.executable, "canonical": self.canonical_executable},
            "started_at": _time_form(self.started_at),
            "finished_at": _time_form(self.finished_at),
            "duration": self.duration,
            "enforcement": {axis: dict(report) for axis, report in self.enforcement.items()},
            "survivors": [dict(one) for one in self.survivors],
            "stop": None if self.stop is None else dict(self.stop),
            "cancel_reason": self.cancel_reason,
        }

    @classmethod
    def from_dict(cls, form: Mapping[str, Any]) -> RunResult:
        """The reverse of `to_dict`.  Raises KeyError, TypeError, ValueError."""
        out, err = form["stdout"], form["stderr"]
        return cls(
            run_id=form["run_id"],
            reason=OutcomeKind(form["reason"]),
            exit_code=form["exit_code"],
            signal=form["signal"],
            stdout=_stream_bytes(out),
            stderr=_stream_bytes(err),
            stdout_bytes=out["bytes"],
            stderr_bytes=err["bytes"],
            stdout_dropped=out["dropped"],
            stderr_dropped=err["dropped"],
            output_incomplete=form["output_incomplete"],
            stdin_bytes=form["stdin_bytes"],
            executable=form["executable"]["requested"],
            canonical_executable=form["executable"]["canonical"],
            started_at=_time(form["started_at"]),
            finished_at=_time(form["finished_at"]),
            duration=form["duration"],
            enforcement=form["enforcement"],
            survivors=tuple(form["survivors"]),
            stop=form["stop"],
            cancel_reason=form.get("cancel_reason"),
        )

    @classmethod
    def from_receipt(
        cls,
        receipt: Mapping[str, Any],
        *,
        run_id: str | None = None,
        stdout: bytes = b"",
        stderr: bytes = b"",
    ) -> RunResult:
        """From the receipt of a run.  ``run_id``: where the receipt is too old to name it.

        What only a worker knows is missing from a receipt that was made up from a lost one's evidence.
        """
        outcome = Outcome.from_dict(receipt["outcome"])
        totals = {name: (receipt.get("output") or {}).get(name, {}) for name in _STREAMS}
        executable = receipt.get("executable") or {}
        return cls(
            run_id=receipt.get("run_id", run_id),
            reason=outcome.kind,
            exit_code=outcome.code,
            signal=outcome.signal,
            stdout=stdout,
            stderr=stderr,
            stdout_bytes=totals["stdout"].get("bytes", len(stdout)),
            stderr_bytes=totals["stderr"].get("bytes", len(stderr)),
            stdout_dropped=totals["stdout"].get("dropped", 0),
            stderr_dropped=totals["stderr"].get("dropped", 0),
            output_incomplete=bool(receipt.get("incomplete"))
            or any(one.get("complete") is False for one in totals.values()),
            stdin_bytes=receipt.get("stdin_bytes", 0),
            executable=executable.get("requested"),
            canonical_executable=executable.get("canonical"),
            started_at=_time(receipt.get("started_at")),
            finished_at=_time(receipt.get("finished_at")),
            duration=receipt.get("duration", 0.0),
            enforcement=all_axes(receipt.get("enforcement")),
            survivors=tuple(receipt.get("survivors") or ()),
            stop=receipt.get("stop"),
        )


def never_started(run_id: str | None = None, cancel_reason: str | None = None) -> RunResult:
    """Of a call that was cancelled before anything was executed."""
    return RunResult(run_id=run_id, reason=OutcomeKind.CANCELLED, cancel_reason=cancel_reason)


class RunFailedError(SupervisorError):
    """``RUN_FAILED``: `RunResult.check` of a run that did not exit with 0; ``result`` is that run's."""

    def __init__(self, result: RunResult) -> None:
        outcome = result.outcome
        details: dict[str, object] = {
            "run_id": result.run_id,
            "executable": result.executable,
            "termination": None if outcome is None else outcome.to_dict(),
        }
        if result.stderr:
            details["stderr_tail"] = tail_text(result.stderr)
        last = _glimpse(result.stderr)
        super().__init__(
            ErrorCode.RUN_FAILED,
            f"{result.executable or 'the run'}: {_ending(result)}" + (f": {last}" if last else ""),
            phase=Phase.RUN,
            hint="`stderr_tail` has its last words, `result` all that is known",
            details=details,
        )
        self.result = result

    def __reduce__(self) -> tuple[object, ...]:
        return (RunFailedError, (self.result,))


def tail_text(data: bytes) -> str:
    """The end of an output as text."""
    return data[-TAIL_BYTES:].decode("utf-8", "replace")


def _glimpse(data: bytes) -> str:
    """The last lines of an output on one line, with nothing in them that a terminal would obey."""
    whole = redact_tokens(tail_text(data))
    kept = " | ".join(line.strip() for line in whole[-_GLIMPSE_CHARACTERS:].splitlines() if line.strip())
    return "".join(one if one.isprintable() else "\ufffd" for one in kept)


def _ending(result: RunResult) -> str:
    if result.outcome is None:
        return f"{result.reason.value} before it was executed"
    how = f"signal {result.signal}" if result.exit_code is None else f"exit code {result.exit_code}"
    natural = result.reason in (OutcomeKind.EXITED, OutcomeKind.SIGNALED)
    return how if natural else f"{result.reason.value} ({how})"


def _stream_form(data: bytes, total: int, dropped: int) -> dict[str, object]:
    """As an event's: ``text``, and ``base64`` where that is not exact."""
    form: dict[str, object] = {"bytes": total, "dropped": dropped}
    try:
        form["text"] = data.decode("utf-8")
    except UnicodeDecodeError:
        form["text"] = data.decode("utf-8", "replace")
        form["base64"] = base64.b64encode(data).decode("ascii")
    return form


def _stream_bytes(form: Mapping[str, Any]) -> bytes:
    exact = form.get("base64")
    return cast(str, form["text"]).encode() if exact is None else base64.b64decode(exact, validate=True)


def _time_form(time: datetime | None) -> str | None:
    if time is None:
        return None
    return time.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def _time(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)
