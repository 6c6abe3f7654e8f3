"""Host applications in processes of their own, and what tests do to the files under a run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from durable_supervisor import Command, ErrorCode, Observer, RunState, RunView, Supervisor, SupervisorError
from durable_supervisor.model.identity import identity_of
from durable_supervisor.process.signals import signal_process
from tests.support import PATIENCE, eventually, running

ROOT = Path(__file__).resolve().parents[2]

_PRELUDE = """
import asyncio, json, os, signal, sys, threading, time
from durable_supervisor import Command, Limits, Observer, Supervisor, SupervisorError
STATE, REPORT = sys.argv[1:3]
def report(**facts):
    with open(REPORT + ".new", "w") as file:
        json.dump(facts, file)
    os.rename(REPORT + ".new", REPORT)

def fill_disk():
    # To the last byte; truncate what it answers with to have room again.
    ballast = os.open(STATE + "/ballast", os.O_WRONLY | os.O_CREAT)
    for size in (4096, 1):
        try:
            while os.write(ballast, b"x" * size):
                pass
        except OSError:
            pass
    return ballast

async def stay():
    # Until the test ends us; not for ever, should the test be killed itself.
    await asyncio.sleep(600)
"""


class HostScript:
    """A running host.  Its ``main`` coroutine is the code; ``report(**facts)`` hands facts back."""

    def __init__(self, code: str, state_dir: Path, folder: Path, *, before: str = "", **options: Any) -> None:
        self.report_path = folder / f"report-{os.urandom(4).hex()}.json"
        self.errors_path = self.report_path.with_suffix(".err")
        body = textwrap.indent(textwrap.dedent(code).strip(), "    ")
        script = f"{_PRELUDE}\n{textwrap.dedent(before)}\nasync def main():\n{body}\nasyncio.run(main())\n"
        env = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
        env |= options.pop("env", {})
        prefix = options.pop("prefix", [])
        command = [*prefix, sys.executable, "-c", script, str(state_dir), str(self.report_path)]
        command += options.pop("arguments", ())
        with open(self.errors_path, "wb") as errors:
            options.setdefault("stderr", errors)
            options.setdefault("stdin", subprocess.DEVNULL)
            self.process = subprocess.Popen(command, env=env, **options)

    def facts(self, timeout: float = 60) -> dict[str, Any]:
        """What it reported, once it has; it may go on."""

        def there() -> bool:
            return self.report_path.exists() or self.process.poll() is not None

        eventually(there, timeout, "the host did not report")
        assert self.report_path.exists(), self.errors()
        self.report_path.chmod(0o600)  # whatever umask the host had
        found = json.loads(self.report_path.read_text())
        assert isinstance(found, dict)
        return found

    def finish(self, timeout: float = 60) -> dict[str, Any]:
        """Wait for its good end; what it reported."""
        code = self.process.wait(timeout)
        assert code == 0, self.errors()
        return self.facts()

    def errors(self) -> str:
        return self.errors_path.read_text(errors="replace")

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def __enter__(self) -> HostScript:
        return self

    def __exit__(self, *exc: object) -> None:
        self.kill()


def host(code: str, state_dir: Path, folder: Path, **options: Any) -> dict[str, Any]:
    """Run a host to its end; what it reported."""
    with HostScript(code, state_dir, folder, **options) as script:
        return script.finish()


async def kill_run(seen: RunView) -> None:
    """SIGKILL worker and program, proven first, and wait until both are gone."""
    for form in (seen.worker, seen.program):
        one = identity_of(form)
        assert one is not None
        signal_process(one, signal.SIGKILL)
        eventually(lambda pid=one.pid: not running(pid))  # type: ignore[misc]


def log_of(state_dir: Path, run_id: str, attempt: int = 1) -> Path:
    """The first segment of a run's log."""
    (found,) = (state_dir / "runs").glob(f"*/{run_id}.a{attempt}.log")
    return found


def flip(path: Path, offset: int, bit: int = 0x10) -> None:
    """One bit, in place."""
    with open(path, "r+b") as file:
        file.seek(offset)
        (byte,) = file.read(1)
        file.seek(offset)
        file.write(bytes([byte ^ bit]))


@asynccontextmanager
async def refused(*codes: ErrorCode) -> AsyncIterator[Callable[[], SupervisorError]]:
    """The body must raise one of these; `SupervisorError` with a hint, on one line."""
    with pytest.raises(SupervisorError) as caught:
        yield lambda: caught.value
    check_error(caught.value, *codes)


def check_error(error: SupervisorError, *codes: ErrorCode) -> None:
    assert error.code in codes, error
    assert error.hint, error.code
    assert "\n" not in error.message
    assert "\n" not in error.hint
    json.dumps(error.to_dict())


async def open_error(state_dir: Path | str | bytes, *codes: ErrorCode, wait: float = 0) -> SupervisorError:
    """Opening is refused, with one of these codes."""
    async with refused(*codes) as caught, Supervisor.open(state_dir, wait=wait):  # type: ignore[arg-type]
        pass
    return caught()


def tree_of(path: Path) -> dict[str, tuple[int, bytes]]:
    """Every file below, with its mode and content: to show that nothing was written.

    Not what an owner makes when it has a moment, whatever it is asked: room at the end of the -wal file.
    """
    return {
        str(one.relative_to(path)): (one.lstat().st_mode, _content(one) if one.is_file() else b"")
        for one in sorted(path.rglob("*"))
        # A reader may make these two (an empty -wal file holds nothing); a worker takes its socket along.
        if not one.name.endswith(("-shm", ".sock"))
        and not (one.name.endswith("-wal") and one.stat().st_size == 0)
    }


def _content(file: Path) -> bytes:
    return file.read_bytes().rstrip(b"\0") if file.name.endswith("-wal") else file.read_bytes()


async def works(path: str | bytes | Path) -> None:
    """A whole life in it: start, control over the socket, wait, read back without owner."""
    async with Supervisor.open(path) as sup:  # type: ignore[arg-type]
        run = await sup.start(Command(argv=["sh", "-c", "read line; echo $line"], stdin="open"))
        await sup.write_stdin(run.id, b"over the socket\n")
        final = await sup.wait(run.id, timeout=PATIENCE)
        assert final.state is RunState.FINISHED
    async with Observer.open(path) as seen:  # type: ignore[arg-type]
        page = await seen.events(run.id)
        assert b"over the socket\n" in [event.data for event in page.events]
