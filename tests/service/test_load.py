"""Much at once, while the service is killed and restarted, crowded and ignored.

Short by default; ``make load`` (``LOAD_TESTS_FULL=1``) is the long form.
"""

from __future__ import annotations

import asyncio
import os
import resource
import select
import signal
import socket
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeVar

from durable_supervisor import AsyncClient, Command, Event, Kind, Limits, RunState, SupervisorError
from tests.contract.hosts import HostScript
from tests.contract.runs import check_gapless
from tests.service.conftest import Serve
from tests.service.daemons import Service, until
from tests.service.loads import (
    FOLLOWING,
    FULL,
    IMPATIENT,
    PASSING,
    TRAFFIC,
    Helper,
    counting,
    has_paged,
)

T = TypeVar("T")

MIB = 1024 * 1024
PATIENCE = 120.0 if FULL else 60.0

# --- kill -9 under live runs and their followers


def test_followers_see_each_event_once_over_kills_of_the_service(
    serve: Serve, state_dir: Path, tmp_path: Path
) -> None:
    count, lines = 20, 1000 if FULL else 150
    books = [tmp_path / f"book-{number}" for number in range(count)]
    service = serve()
    commands = [{"argv": counting(book, lines, number), "stdin": "open"} for number, book in enumerate(books)]
    runs = [service.ask("POST", "/v1/start", {"command": one})[1]["run_id"] for one in commands]
    with ExitStack() as ending:
        followers = [
            ending.enter_context(Helper(FOLLOWING, state_dir, tmp_path, *runs[lane::2])) for lane in range(2)
        ]
        for share in (0.2, 0.7):
            until(lambda: followed(service) == count, "all of them follow")  # noqa: B023
            for run in runs:
                assert service.ask("POST", f"/v1/runs/{run}/write-stdin", content=b"\n")[0] == 200
            until(lambda: written(books) >= share * count * lines, "they write on")  # noqa: B023
            service.end(signal.SIGKILL)
            service = serve()
        seen = {run: facts for one in followers for run, facts in one.finish(PATIENCE).items()}
    for number, (run, book) in enumerate(zip(runs, books, strict=True)):
        numbers = [str(line) for line in range(1, lines + 1)]
        facts = seen[run]
        assert facts["seqs"] == list(range(1, len(facts["seqs"]) + 1))
        assert facts["last"] == Kind.RUN_FINISHED
        assert facts["text"].split() == numbers
        pid, *counted = book.read_text().splitlines()
        assert pid.startswith("pid ")
        assert counted == numbers, "it ran once, and was not disturbed"
        found = service.inspect(run)
        assert (found["state"], found["outcome"]["kind"], found["outcome"]["code"]) == (
            "finished", "exited", number,
        )  # fmt: skip
        assert found["program"]["pid"] == int(pid.removeprefix("pid "))


def followed(service: Service) -> int:
    """How many follow at this moment."""
    _, text = service.ask("GET", "/metrics")
    (line,) = [line for line in text.splitlines() if line.startswith("durable_supervisor_followers ")]
    return int(float(line.split()[1]))


def written(books: list[Path]) -> int:
    """How many lines, but for the first of each."""
    return sum(book.read_bytes().count(b"\n") - 1 for book in books if book.exists())


# --- writers and pagers, and a service that comes and goes


def test_writers_and_pagers_over_restarts(serve: Serve, state_dir: Path, tmp_path: Path) -> None:
    seconds, processes = (30.0, 4) if FULL else (4.0, 2)
    over, book = tmp_path / "over", tmp_path / "book"
    services = [serve()]
    with ExitStack() as ending:
        traffic = [
            ending.enter_context(
                Helper(TRAFFIC, state_dir, tmp_path, str(over), str(book), f"p{number}", str(8 // processes))
            )
            for number in range(processes)
        ]
        ran = 0
        for signo in (signal.SIGTERM, signal.SIGKILL, None):
            end = time.monotonic() + seconds / 3
            until(lambda: time.monotonic() > end and lines_of(book) >= ran + 8, "traffic goes on")  # noqa: B023
            ran = lines_of(book)
            if signo is not None:
                assert services[-1].end(signo) == (0 if signo is signal.SIGTERM else -signo)
                services.append(serve())
        until(lambda: all(map(has_paged, traffic)), "each of them has paged")
        over.touch()
        facts = [one.finish(PATIENCE) for one in traffic]
    told: Counter[str] = sum((Counter(one["told"]) for one in facts), Counter())
    assert [line for one in facts for line in one["final"]] == []
    assert set(told) <= PASSING, told
    for one in facts:
        assert set(one["pages"]) == {"list", "events", "feed"}
    done = dict(pair for one in facts for pair in one["done"])
    check_each_ran_once(services[-1], done, book)
    for service in services:
        assert "locked" not in service.log()
        assert not service.entries("request_failed")


def check_each_ran_once(service: Service, done: dict[str, str], book: Path) -> None:
    """Each id that was answered, and no other, is one run that ran once."""
    until(lambda: lines_of(book) >= len(done), "the last of them have run")
    assert sorted(book.read_text().split()) == sorted(done)
    until(lambda: set(states(service).values()) == {"finished"}, "all are known to be over")
    assert set(states(service)) == set(done.values())


def lines_of(book: Path) -> int:
    return book.read_bytes().count(b"\n") if book.exists() else 0


def states(service: Service) -> dict[str, str]:
    """Of every run of the directory; each is listed once."""
    found: dict[str, str] = {}
    before = ""
    while True:
        status, page = service.ask("GET", f"/v1/list?limit=1000{before}")
        assert status == 200
        for run in page["runs"]:
            assert run["run_id"] not in found
            found[run["run_id"]] = run["state"]
        if page["next_before"] is None:
            return found
        before = f"&before={page['next_before']}"


# --- a crowd


def test_a_crowd_of_bad_clients_locks_nobody_out(serve: Serve, tmp_path: Path) -> None:
    """More than the service takes, of every kind that asks for no answer, or does not read it."""
    service = serve("--max-connections", "512" if FULL else "128")
    loud = service.start("sh", "-c", "yes | head -c 4000000; exec sleep 300")
    before = descriptors(service.process.pid)
    with crowd(service.socket, loud, 1000 if FULL else 200) as others:
        asyncio.run(use(service.state_dir, rounds=20 if FULL else 8))
        assert len(others) >= 200
    until(lambda: descriptors(service.process.pid) <= before + 4, "what the crowd held is given back")
    assert service.ask("POST", f"/v1/runs/{loud}/stop", {"grace": 1})[1]["confirmed"]
    assert service.end() == 0


def habits(run: str) -> list[bytes]:
    """What each kind of client sends before it falls silent."""
    follow = b"GET /v1/runs/%s/follow HTTP/1.1\r\nHost: x\r\n\r\n" % run.encode()
    return [
        b"",
        b"GET /v1/info HTTP/1.1\r\nHost: ",
        b"POST /v1/runs/%s/stop HTTP/1.1\r\nHost: x\r\nContent-Length: 99\r\n\r\n{" % run.encode(),
        follow,
        b"GET /v1/feed/follow?after=1000000 HTTP/1.1\r\nHost: x\r\n\r\n",
        follow * 20,
        b"\x16\x03\x01\x02\x00\x01\x00",
    ]


@contextmanager
def crowd(path: str, run: str, size: int) -> Iterator[list[socket.socket]]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 4096)), hard))
    said = habits(run)
    try:
        with ExitStack() as ending:
            others = []
            for number in range(size):
                one = ending.enter_context(socket.socket(socket.AF_UNIX))
                one.settimeout(PATIENCE)
                one.connect(path)
                send(one, said[number % len(said)])
                if number % 3 == 0:
                    half_close(one)
                others.append(one)
            yield others
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def send(one: socket.socket, words: bytes) -> None:
    try:
        one.sendall(words)
    except (BrokenPipeError, ConnectionResetError):
        return  # it had to make room for the next one already


def half_close(one: socket.socket) -> None:
    try:
        one.shutdown(socket.SHUT_WR)
    except OSError:
        return


async def use(state_dir: Path, rounds: int) -> None:
    """Whole lives of runs; what is refused for lack of room is asked for again, as its error says."""

    async def reach() -> AsyncClient:
        return await AsyncClient.connect(state_dir)

    async with await answered(reach) as client:
        for number in range(rounds):
            await a_whole_life(client, f"crowded-{number}")


async def a_whole_life(client: AsyncClient, request_id: str) -> None:
    command = Command(argv=["echo", request_id])
    run = await answered(lambda: client.start(command, request_id=request_id))
    seen = await answered(lambda: client.wait(run.id, timeout=PATIENCE))
    assert seen.state is RunState.FINISHED
    page = await answered(lambda: client.events(run.id))
    check_gapless(page.events)
    assert (await answered(lambda: client.list(limit=1))).runs


async def answered(call: Callable[[], Awaitable[T]]) -> T:
    """Its answer, asked for again as long as it may be."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return await call()
        except SupervisorError as error:
            if not (error.code.value in PASSING and error.retryable and time.monotonic() < deadline):
                raise
            await asyncio.sleep(0.02)


def descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


# --- a follower that never reads


async def test_who_never_reads_costs_only_itself(state_dir: Path, tmp_path: Path) -> None:
    """The program finishes, the service stays small, and the follower's cursor is good for the rest."""
    size = (100 if FULL else 20) * MIB
    with HostScript(IMPATIENT, state_dir, tmp_path) as service, socket.socket(socket.AF_UNIX) as deaf:
        facts = await asyncio.to_thread(service.facts)
        async with AsyncClient.connect(state_dir) as client:
            run = await client.start(
                Command(argv=["sh", "-c", f"read go; yes 'a line' | head -c {size}; exit 7"], stdin="open"),
                limits=Limits(max_stdout_bytes=2 * size),
            )
            deaf.connect(facts["socket"])
            deaf.sendall(b"GET /v1/runs/%s/follow HTTP/1.1\r\nHost: x\r\n\r\n" % run.id.encode())
            before = resident(facts["pid"])
            await client.write_stdin(run.id, b"go\n")
            seen = await client.wait(run.id, timeout=PATIENCE)
            assert (seen.outcome and seen.outcome.code, seen.state) == (7, RunState.FINISHED)
            output: Any = (seen.receipt or {})["output"]
            assert output["stdout"] == {"bytes": size, "dropped": 0, "complete": True}
            cursor = await asyncio.to_thread(last_id, deaf)
            assert 0 < cursor < seen.head, "it was dropped on the way"
            assert resident(facts["pid"]) - before < 64 * MIB
            await check_rest(client, run.id, cursor, size)


async def check_rest(client: AsyncClient, run: str, cursor: int, size: int) -> None:
    """What was read before the cursor and what comes after it are the whole."""
    first: list[Event] = []
    while not first or first[-1].seq < cursor:
        after = first[-1].seq if first else 0
        first += (await client.events(run, after=after, limit=min(100, cursor - after))).events
    rest = [event async for event in client.follow(run, after=cursor)]
    check_gapless([*first, *rest])
    assert rest[-1].kind == Kind.RUN_FINISHED
    assert sum(len(event.data) for event in [*first, *rest]) == size


def last_id(deaf: socket.socket) -> int:
    """Of the last whole message that reached it; its connection must have ended."""
    deaf.settimeout(PATIENCE)
    poll = select.poll()
    poll.register(deaf, select.POLLRDHUP)
    assert poll.poll(PATIENCE * 1000), "it was never dropped"
    text = b""
    try:
        while piece := deaf.recv(65536):
            text += piece
    except ConnectionResetError:
        pass
    whole = text.rpartition(b"\n\n")[0]
    return max(int(line[4:]) for line in whole.splitlines() if line.startswith(b"id: "))


def resident(pid: int) -> int:
    """Bytes."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
