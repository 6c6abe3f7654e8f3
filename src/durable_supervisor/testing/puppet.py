"""The code of a fake program: it does its steps, and writes down in a ledger what it got.

`fake` puts this text into an executable of its own, with the steps behind it; so it uses nothing but
the standard library, and a confined program needs no file of the product.  Each record is one
``write`` to a file opened for appending: what was written stays, whoever is killed next.
"""

# Without `from __future__`, which could not stand where this text comes to stand in the executable.
import base64
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

LONGEST_LIFE = 600  # seconds: should the test itself be killed, nothing of it stays for ever
PAUSE = 0.01
STDIN_BYTES = 64 * 1024


class Puppet:
    """One execution."""

    def __init__(self, folder: str, environment: list[str]) -> None:
        self.folder = folder
        self.key = f"{os.getpid()}.{time.monotonic_ns()}"
        self._unread = b""
        self._arrived: set[str] = set()
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        self._ledger = os.open(os.path.join(folder, "ledger"), flags, 0o600)
        kept = {name: os.environ[name] for name in environment if name in os.environ}
        self.record("begin", argv=sys.argv, cwd=os.getcwd(), env_names=sorted(os.environ), env=kept)

    def record(self, event: str, **facts: object) -> None:
        line = json.dumps({"key": self.key, "event": event, "pid": os.getpid(), **facts}) + "\n"
        os.write(self._ledger, line.encode())

    def perform(self, steps: list[list[Any]]) -> None:
        for name, *arguments in steps:
            getattr(self, "do_" + name)(*arguments)
        self.do_exit(0)

    # The steps.

    def do_print(self, fd: int, data: str, times: int) -> None:
        content = base64.b64decode(data)
        for _ in range(times):
            _write(fd, content)

    def do_mark(self, name: str) -> None:
        self.record("mark", name=name)

    def do_wait(self, gate: str) -> None:
        _until(lambda: os.path.exists(os.path.join(self.folder, "gate." + gate)))

    def do_wait_signal(self, name: str) -> None:
        # Noted from the first step on (see `prepare`), so that one which came early counts.
        _until(lambda: name in self._arrived)
        self._arrived.discard(name)

    def do_ignore(self, names: list[str]) -> None:
        for name in names:
            signal.signal(_number(name), signal.SIG_IGN)

    def do_read_line(self, answer: str | None) -> None:
        if self._read_line() is not None and answer is not None:
            _write(1, base64.b64decode(answer))

    def do_reply(self, answers: dict[str, str], otherwise: str | None) -> None:
        while (line := self._read_line()) is not None:
            answer = answers.get(line.decode(errors="replace").rstrip("\r\n"), otherwise)
            if answer is not None:
                _write(1, base64.b64decode(answer))

    def do_read_all(self) -> None:
        while self._read():
            self._unread = b""

    def do_child(self, kind: str, stubborn: bool) -> None:
        """One that stays: in this session, in one of its own, or as a daemon with an empty environment."""
        ready, told = os.pipe()
        if os.fork() == 0:
            self._be_child(kind, stubborn, told)
        os.close(told)
        os.read(ready, 1)  # its record is in the ledger, or it is dead
        os.close(ready)

    def do_python(self, source: str) -> None:
        exec(compile(source, "<step>", "exec"), {"__name__": "__step__"})  # noqa: S102  the test's own code

    def do_hang(self) -> None:
        _until(lambda: False)

    def do_die(self, name: str) -> None:
        self.record("end", signal=name)
        if _number(name) != signal.SIGKILL:
            signal.signal(_number(name), signal.SIG_DFL)
        os.kill(os.getpid(), _number(name))

    def do_exit(self, code: int) -> None:
        self.record("end", code=code)
        os._exit(code)  # all was written through descriptors: there is nothing to flush

    # Behind them.

    def prepare(self, steps: list[list[Any]]) -> None:
        """Before the first step: die like any program, and note the signals that some step waits for."""
        signal.alarm(LONGEST_LIFE)
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # not ignored by whoever started us
            signal.signal(signal.SIGINT, signal.SIG_DFL)
        for name in {step[1] for step in steps if step[0] == "wait_signal"}:
            signal.signal(_number(name), lambda *_, name=name: self._note(name))

    def _note(self, name: str) -> None:
        self._arrived.add(name)
        self.record("signal", name=name)

    def _be_child(self, kind: str, stubborn: bool, told: int) -> None:
        if kind != "plain":
            os.setsid()
        if kind == "daemon" and os.fork() != 0:
            os._exit(0)
        for name in ("TERM", "HUP", "INT"):
            signal.signal(_number(name), signal.SIG_IGN if stubborn else signal.SIG_DFL)
        signal.alarm(LONGEST_LIFE)
        self.record("child", kind=kind)
        os.close(told)
        if kind == "daemon":
            os.execve("/bin/sleep", ["sleep", str(LONGEST_LIFE)], {})
        while True:
            signal.pause()

    def _read_line(self) -> bytes | None:
        """With its newline; the last one may lack it.  None at the end."""
        while b"\n" not in self._unread and self._read():
            pass
        if not self._unread:
            return None
        line, newline, self._unread = self._unread.partition(b"\n")
        return line + newline

    def _read(self) -> bool:
        data = os.read(0, STDIN_BYTES)
        self._unread += data
        if data:
            self.record("stdin", data=base64.b64encode(data).decode())
        return bool(data)


def _number(name: str) -> signal.Signals:
    return signal.Signals["SIG" + name]


def _write(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def _until(condition: Callable[[], bool]) -> None:
    while not condition():
        time.sleep(PAUSE)


def main(folder: str, environment: list[str], steps: list[list[Any]]) -> None:
    puppet = Puppet(folder, environment)
    puppet.prepare(steps)
    puppet.perform(steps)
