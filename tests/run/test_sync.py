"""The twins for threads."""

from __future__ import annotations

import asyncio
import inspect
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import durable_supervisor
from durable_supervisor import (
    CancellationToken,
    Client,
    Command,
    ErrorCode,
    OutcomeKind,
    Session,
    Supervisor,
    SupervisorError,
    sync,
)
from tests.contract.hosts import HostScript, refused
from tests.contract.runs import Marker, appear, gone
from tests.support import PATIENCE, eventually


@contextmanager
def owning(state_dir: Path) -> Iterator[Session]:
    """A session in a loop of another thread."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    async def opening() -> Session:
        return await durable_supervisor.open(state_dir, serve=True)

    session = asyncio.run_coroutine_threadsafe(opening(), loop).result(PATIENCE)
    try:
        yield session
    finally:
        asyncio.run_coroutine_threadsafe(session.close(), loop).result(PATIENCE)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(PATIENCE)
        loop.close()


@pytest.fixture
def session(state_dir: Path) -> Iterator[Session]:
    with owning(state_dir) as opened:
        yield opened


@pytest.mark.parametrize("who", ["session", "client"])
def test_the_three_calls(session: Session, who: str) -> None:
    with Client.connect(session.state_dir) as client:
        answers = session if who == "session" else client
        assert (
            sync.run(Command(argv=["cat"]), input=b"x" * 600_000, supervisor=answers).stdin_bytes == 600_000
        )
        with sync.stream(Command(argv=["sh", "-c", "echo a; echo b"]), supervisor=answers) as events:
            assert [line.text for line in events.lines()] == ["a", "b"]
            assert events.wait().success
        with sync.stream(Command(argv=["yes"]), supervisor=answers) as events:
            for event in events:
                if event.data:
                    break
        assert events.wait().reason is OutcomeKind.CANCELLED
        with sync.spawn(Command(argv=["cat"]), capture=True, supervisor=answers) as process:
            process.write_stdin(b"to and fro\n")
            assert any(b"fro" in event.data for event in process.events() if event.data)
            process.close_stdin()
            assert process.wait().stdout == b"to and fro\n"
            assert process.terminate().result == "already_ended"
        process.close()


def test_threads_share_a_process(session: Session) -> None:
    with sync.spawn(Command(argv=["cat"]), capture=True, supervisor=session) as process:
        seen: list[bytes] = []
        reader = threading.Thread(target=lambda: seen.extend(one.data for one in process.events()))
        reader.start()
        process.write_stdin(b"hello", eof=True)
        assert process.wait(PATIENCE).stdout == b"hello"
        reader.join(PATIENCE)
        assert b"".join(seen) == b"hello"


def test_a_token_of_another_thread(session: Session, marker: Marker) -> None:
    token = CancellationToken()

    def cancel() -> None:
        appear(marker, 1)
        token.cancel()

    threading.Thread(target=cancel).start()
    result = sync.run(Command(argv=["sleep", str(marker)]), token=token, supervisor=session)
    assert result.reason is OutcomeKind.CANCELLED
    gone(marker)


async def test_a_task_of_another_loop_is_told_so(session: Session) -> None:
    async with refused(ErrorCode.INVALID_REQUEST) as caught:
        await durable_supervisor.run(Command(argv=["true"]), supervisor=session)
    assert caught().details["field"] == "supervisor"
    assert sync.run(Command(argv=["true"]), supervisor=session).success


async def test_it_does_not_wait_for_the_loop_it_blocks(state_dir: Path) -> None:
    async with Supervisor.open(state_dir) as sup:
        async with refused(ErrorCode.INVALID_REQUEST) as caught:
            sync.run(Command(argv=["true"]), supervisor=sup)
        assert caught().details["field"] == "supervisor"
        result = await asyncio.to_thread(sync.run, Command(argv=["true"]), supervisor=sup)
        assert result.success


@pytest.mark.parametrize("closed", [False, True])
def test_a_loop_that_nobody_runs_is_not_waited_for(state_dir: Path, closed: bool) -> None:
    loop = asyncio.new_event_loop()

    async def opened() -> Supervisor:
        return await Supervisor.open(state_dir)

    sup = loop.run_until_complete(opened())
    try:
        if closed:
            loop.run_until_complete(sup.close())
            loop.close()
        for call in (sync.run, sync.stream, sync.spawn):
            with pytest.raises(SupervisorError) as caught:
                call(Command(argv=["true"]), supervisor=sup)
            assert (caught.value.code, caught.value.details["field"]) == ("INVALID_REQUEST", "supervisor")
    finally:
        if not closed:
            loop.run_until_complete(sup.close())
            loop.close()


def test_who_cannot_answer(state_dir: Path) -> None:
    with durable_supervisor_observer(state_dir) as observer, pytest.raises(SupervisorError) as caught:
        sync.run(Command(argv=["true"]), supervisor=observer)  # type: ignore[arg-type]
    assert caught.value.details["field"] == "supervisor"


@contextmanager
def durable_supervisor_observer(state_dir: Path) -> Iterator[object]:
    async def opened() -> object:
        return durable_supervisor.Observer.open(state_dir)

    yield asyncio.run(opened())


def test_an_interruption_leaves_nothing(state_dir: Path, tmp_path: Path, marker: Marker) -> None:
    code = f"""
        signal.signal(signal.SIGINT, signal.default_int_handler)  # asyncio.run has one of its own
        report(pid=os.getpid())
        try:
            sync.run(Command(argv=["sh", "-c", "sleep {marker} & sleep {marker}"]))
        except KeyboardInterrupt:
            os._exit(7)
    """
    env = {"DURABLE_SUPERVISOR_STATE_DIR": str(state_dir)}
    before = "from durable_supervisor import sync"
    with HostScript(code, state_dir, tmp_path, before=before, env=env) as script:
        script.facts()
        appear(marker, 2)
        script.process.send_signal(signal.SIGINT)
        assert script.process.wait(PATIENCE) == 7
        gone(marker)


def test_the_twins_take_the_same() -> None:
    for name in ("run", "stream", "spawn"):
        mine, theirs = getattr(sync, name), getattr(durable_supervisor, name)
        assert list(inspect.signature(mine).parameters) == list(inspect.signature(theirs).parameters)
    for name in ("Stream", "Process"):
        mine, theirs = getattr(sync, name), getattr(durable_supervisor, name)
        public = {one for one in vars(theirs) if not one.startswith("_")}
        assert public == {one for one in vars(mine) if not one.startswith("_")}


def test_no_thread_is_left_waiting(session: Session) -> None:
    before = threading.active_count()
    for _ in range(3):
        sync.run(Command(argv=["true"]), supervisor=session)
    eventually(lambda: threading.active_count() <= before + 4)  # the session's own readers
    assert os.getpid()
