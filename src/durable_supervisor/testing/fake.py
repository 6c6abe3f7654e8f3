"""Fake programs: executables that do what a test tells them, and keep a ledger of what they got."""

from __future__ import annotations

import base64
import os
import shlex
import signal
import sys
import time
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any, Literal, Self

from ..model.command import Command
from ..model.policy import Access, Grant
from .reports import records

Child = Literal["plain", "session", "daemon"]

PATIENCE = 20.0  # seconds
_PAUSE = 0.01
# A shell reads the first line as the assignment-free command `exec`, Python the whole as a string: so the
# interpreter's path may be long and hold spaces, which a "#!" line cannot (execve(2)).
_HEADER = "#!/bin/sh\n'''exec' {python} -IS \"$0\" \"$@\"\n'''\n"


@dataclass(frozen=True, slots=True)
class Execution:
    """What one execution of a fake program wrote down.

    ``argv`` as it got it (its own path first).  ``env_names``: all of its environment;
    ``env``: the values of those that `FakeProgram.keep_env` named.  ``stdin``: what its steps read.
    ``signals``, ``marks``: in the order they came.  ``children``: the pids of those it left.
    ``code``, ``signal``: how it was about to end by its own steps; both None while it is running,
    and for one that was ended by somebody else.
    """

    pid: int
    argv: list[str]
    cwd: str
    env_names: list[str]
    env: dict[str, str]
    stdin: bytes = b""
    signals: list[str] = field(default_factory=list)
    marks: list[str] = field(default_factory=list)
    children: list[int] = field(default_factory=list)
    code: int | None = None
    signal: str | None = None


class FakeProgram:
    """An executable made of steps, which are done in the order they are called in.

    Each step answers the program itself: ``fake_program().stdout("ready\\n").wait("go").exit(3)``.
    The file is written at the first use of `path`; after that a further step is an error.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._steps: list[list[Any]] = []
        self._kept: list[str] = []
        self._written = False

    # Steps.

    def stdout(self, text: str | bytes, *, times: int = 1) -> Self:
        """Print it, ``times`` over."""
        return self._step("print", 1, _encoded(text), times)

    def stderr(self, text: str | bytes, *, times: int = 1) -> Self:
        return self._step("print", 2, _encoded(text), times)

    def mark(self, name: str) -> Self:
        """Note in the ledger that it came so far: see `wait_for`."""
        return self._step("mark", name)

    def wait(self, gate: str) -> Self:
        """Go on when the test has opened this gate (`open`)."""
        return self._step("wait", _name(gate))

    def wait_signal(self, name: str) -> Self:
        """Go on when this signal (such as ``"TERM"``) has come; one that came earlier counts."""
        return self._step("wait_signal", _signal(name))

    def ignore(self, *names: str) -> Self:
        """Ignore these signals from here on, such as ``"TERM"``."""
        return self._step("ignore", [_signal(name) for name in names])

    def read_line(self, answer: str | bytes | None = None) -> Self:
        """Read a line of stdin, then print ``answer``, if there was one."""
        return self._step("read_line", None if answer is None else _encoded(answer))

    def reply(
        self, answers: dict[str, str | bytes] | None = None, otherwise: str | bytes | None = None
    ) -> Self:
        """Answer each line of stdin (its newline left out) by ``answers``, else with ``otherwise``."""
        table = {line: _encoded(answer) for line, answer in (answers or {}).items()}
        return self._step("reply", table, None if otherwise is None else _encoded(otherwise))

    def read_all(self) -> Self:
        """Read stdin to its end."""
        return self._step("read_all")

    def child(self, kind: Child = "plain", *, stubborn: bool = False) -> Self:
        """Leave a child that stays until it is ended, and holds stdout and stderr.

        ``session``: in a session of its own (setsid).  ``daemon``: that, forked twice, and
        executed with an empty environment.  ``stubborn``: it ignores TERM, HUP and INT.
        """
        if kind not in ("plain", "session", "daemon"):
            raise ValueError("kind is one of plain, session, daemon")
        return self._step("child", kind, stubborn)

    def python(self, source: str) -> Self:
        """Execute Python code, with the standard library alone."""
        compile(source, "<step>", "exec")  # a mistake shows here, and not as a program that fails
        return self._step("python", source)

    def hang(self) -> Self:
        """Stay until somebody ends it (or for ten minutes)."""
        return self._step("hang")

    def exit(self, code: int = 0) -> Self:
        """Leave with this code; a program without it leaves with 0 after its last step."""
        return self._step("exit", code)

    def die(self, name: str = "KILL") -> Self:
        """Kill itself with this signal."""
        return self._step("die", _signal(name))

    def keep_env(self, *names: str) -> Self:
        """Note the values of these variables as well (`Execution.env`)."""
        self._check_unwritten()
        self._kept += names
        return self

    # Using it.

    @property
    def path(self) -> str:
        """The executable."""
        self._write_once()
        return str(self.folder / "program")

    def command(self, *arguments: str, **fields: Any) -> Command:
        """A `Command` that executes it with these arguments; ``fields`` are the command's others."""
        return Command(argv=[self.path, *arguments], **fields)

    @property
    def grants(self) -> list[Grant]:
        """What it needs of the file system where a `Policy` has a ``filesystem``: its folder and Python."""
        prefix = os.path.realpath(sys.base_prefix)
        return [Grant(os.path.realpath(self.folder), Access.ALL), Grant(prefix, Access.EXECUTE)]

    def open(self, gate: str) -> None:
        """Let it go on behind ``wait(gate)``, now and in later executions."""
        (self.folder / f"gate.{_name(gate)}").touch()

    # What it wrote down.

    @property
    def executions(self) -> list[Execution]:
        """Every execution so far, in the order they began."""
        return _executions(records(self.folder / "ledger"))

    @property
    def ran(self) -> bool:
        """Was it executed at all?"""
        return bool(self.executions)

    def once(self) -> Execution:
        """Its only execution; AssertionError if it was executed never, or more than once."""
        found = self.executions
        if len(found) != 1:
            raise AssertionError(f"executed {len(found)} times, not once: {found}")
        return found[0]

    def wait_for(self, mark: str, *, timeout: float = PATIENCE) -> Execution:
        """Wait until some execution has come to `mark`; AssertionError after ``timeout`` seconds.

        It blocks: in an async test say ``await asyncio.to_thread(program.wait_for, "ready")``.
        """
        deadline = time.monotonic() + timeout
        while True:
            found = [one for one in self.executions if mark in one.marks]
            if found:
                return found[-1]
            if time.monotonic() > deadline:
                raise AssertionError(f"no execution came to mark {mark!r} in {timeout} s: {self.executions}")
            time.sleep(_PAUSE)

    # Behind them.

    def __getstate__(self) -> dict[str, Any]:
        """For another process, which finds it written and does not write over it."""
        self._write_once()
        return self.__dict__

    def _step(self, *step: Any) -> Self:
        self._check_unwritten()
        self._steps.append(list(step))
        return self

    def _check_unwritten(self) -> None:
        if self._written:
            raise RuntimeError("the program is written already: give all steps before its first use")

    def _write_once(self) -> None:
        if self._written:
            return
        source = resources.files(__package__).joinpath("puppet.py").read_text(encoding="utf-8")
        call = f"\n\nmain({str(self.folder)!a}, {self._kept!a}, {self._steps!a})\n"
        # The real interpreter: one of a virtual environment would have to read that as well.
        python = shlex.quote(os.path.realpath(sys.executable))
        body = _HEADER.format(python=python) + source + call
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        fd = os.open(self.folder / "program", flags, 0o700)
        with open(fd, "w", encoding="utf-8") as file:
            file.write(body)
        self._written = True


class FakePrograms:
    """Makes fake programs, each in a folder of its own: the fixture ``fake_program``."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._count = 0

    def __call__(self, name: str = "program") -> FakeProgram:
        """A new one, without steps; ``name`` is only for its folder."""
        self._count += 1
        folder = self._folder / f"{_name(name)}-{self._count}"
        folder.mkdir(mode=0o700, parents=True)
        return FakeProgram(folder)


def _executions(ledger: list[dict[str, Any]]) -> list[Execution]:
    """In the order of their first records: each execution's own are in order, those of several mixed."""
    by_key: dict[str, list[dict[str, Any]]] = {}
    for record in ledger:
        by_key.setdefault(record["key"], []).append(record)
    return [_execution(own) for own in by_key.values()]


def _execution(own: list[dict[str, Any]]) -> Execution:
    def of(event: str, name: str) -> list[Any]:
        return [record[name] for record in own if record["event"] == event]

    begin = own[0]
    ended = next((record for record in own if record["event"] == "end"), {})
    return Execution(
        **{name: begin[name] for name in ("pid", "argv", "cwd", "env_names", "env")},
        stdin=b"".join(map(base64.b64decode, of("stdin", "data"))),
        signals=of("signal", "name"),
        marks=of("mark", "name"),
        children=of("child", "pid"),
        code=ended.get("code"),
        signal=ended.get("signal"),
    )


def _encoded(text: str | bytes) -> str:
    """For the steps, which are written as text."""
    return base64.b64encode(text.encode() if isinstance(text, str) else text).decode()


def _signal(name: str) -> str:
    """``TERM`` for ``"TERM"`` and ``"SIGTERM"``; ValueError for what is no signal."""
    short = name.upper().removeprefix("SIG")
    if f"SIG{short}" not in signal.Signals.__members__:
        raise ValueError(f"{name!r} is not the name of a signal, such as TERM")
    return short


def _name(text: str) -> str:
    """Of a gate or a folder: part of a file name."""
    if not text or "/" in text or "\0" in text:
        raise ValueError(f"{text!r} cannot be part of a file name")
    return text
