"""Processes that use a service heavily, as its clients and as its programs do."""

from __future__ import annotations

import os
from pathlib import Path

from durable_supervisor.model.errors import ErrorCode
from tests.contract.hosts import HostScript

# LOAD_TESTS_FULL=1 (`make load`): as long and as much as a bad day has; else a few seconds of it.
FULL = os.environ.get("LOAD_TESTS_FULL") == "1"

# What a caller may meet while a service comes and goes, each of them retryable.
PASSING = frozenset(
    {
        ErrorCode.SERVICE_UNAVAILABLE.value,
        ErrorCode.SUBMISSION_INDETERMINATE.value,
        ErrorCode.SHUTTING_DOWN.value,
        ErrorCode.BUSY.value,
    }
)

# Its number on stdout and in its own book, every 20 ms; the first line of the book is who wrote it.
# It waits for a word on its stdin before it begins, and once more in the middle.
COUNTING = """
import os, sys, time
book, lines = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND), int(sys.argv[2])
os.write(book, b"pid %d\\n" % os.getpid())
for number in range(1, lines + 1):
    if number in (1, lines // 2):
        os.read(0, 1)
    os.write(1, b"%d\\n" % number)
    os.write(book, b"%d\\n" % number)
    time.sleep(0.02)
sys.exit(int(sys.argv[3]))
"""

FOLLOWING = """
from durable_supervisor import AsyncClient
async def follow(client, run):
    seen = [event async for event in client.follow(run)]
    return {"seqs": [event.seq for event in seen], "last": seen[-1].kind,
            "text": b"".join(event.data for event in seen if event.kind == "output").decode()}
async with AsyncClient.connect(STATE) as client:
    runs = sys.argv[3:]
    found = await asyncio.gather(*(follow(client, run) for run in runs))
report(**dict(zip(runs, found)))
"""

# Writers and pagers until the file appears.  What they were told is noted, and then they ask again,
# by the same request id; one that may not be sent again is the last that its task has to say.
TRAFFIC = """
import collections, pathlib
from durable_supervisor import AsyncClient
over, book, name, count = pathlib.Path(sys.argv[3]), sys.argv[4], sys.argv[5], int(sys.argv[6])
told, final, done, pages = collections.Counter(), [], [], collections.Counter()

async def insist(call):
    while True:
        try:
            return await call()
        except SupervisorError as error:
            told[error.code.value] += 1
            if "locked" in str(error) or not error.retryable:
                final.append(str(error))
                raise
            await asyncio.sleep(0.02)

async def write(client, lane):
    number = 0
    while not over.exists():
        number += 1
        key = f"{name}-{lane}-{number}"
        command = Command(argv=["sh", "-c", 'echo "$1" >> "$2"', "sh", key, book])
        run = await insist(lambda: client.start(command, request_id=key))
        done.append([key, run.id])

async def page_runs(client):
    before, serials = None, []
    for _ in range(3):
        page = await insist(lambda: client.list(limit=7, before=before))
        serials += [seen.serial for seen in page.runs]
        before = page.next_before
        if before is None:
            break
    assert serials == sorted(set(serials), reverse=True), serials
    pages["list"] += 1
    return page.runs[-1].id if page.runs else None

async def page_events(client, run):
    after, seqs = 0, []
    while True:
        page = await insist(lambda: client.events(run, after=after, limit=2))
        seqs += [event.seq for event in page.events]
        if page.next_after == after:
            break
        after = page.next_after
    assert seqs == list(range(1, len(seqs) + 1)), seqs
    pages["events"] += 1
    open(REPORT + ".paged", "w").close()

async def page(client):
    position = 0
    while not over.exists():
        entries = await insist(lambda: client.feed(after=position, limit=50))
        assert [entry.position for entry in entries] == list(range(position + 1, position + 1 + len(entries)))
        position += len(entries)
        pages["feed"] += 1
        run = await page_runs(client)
        if run is not None:
            await page_events(client, run)

async def lane(number):
    # Every other one is told of each loss of the service; the rest are met again by their client.
    async with AsyncClient.connect(STATE, reconnect=(0, 30)[number % 2]) as client:
        await asyncio.gather(write(client, number), page(client))

results = await asyncio.gather(*(lane(number) for number in range(count)), return_exceptions=True)
final += [repr(one) for one in results if isinstance(one, BaseException)]
report(told=told, final=final, done=done, pages=pages)
"""

# A service that soon gives up on who does not read.
IMPATIENT = """
from durable_supervisor.server.server import Server
async with Supervisor.open(STATE) as sup:
    server = Server(sup, stall=1.0)
    await server.start()
    report(pid=os.getpid(), socket=server.path)
    await asyncio.Event().wait()
"""


class Helper(HostScript):
    """A host script that takes arguments of its own."""

    def __init__(self, code: str, state_dir: Path, folder: Path, *arguments: str) -> None:
        super().__init__(code, state_dir, folder, arguments=arguments)


def counting(book: Path, lines: int, code: int) -> list[str]:
    """The argv of a program that counts, for any user."""
    return ["python3", "-I", "-S", "-c", COUNTING, str(book), str(lines), str(code)]


def has_paged(traffic: HostScript) -> bool:
    """Has it read a run's events, page by page?"""
    return Path(f"{traffic.report_path}.paged").exists()
