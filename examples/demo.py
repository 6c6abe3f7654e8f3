"""See in ten seconds why this exists: ``make demo``.

1. An application starts a long-running program through durable_supervisor and reads along.
2. The application is killed with SIGKILL.
3. The program goes on, and its output is kept, with nobody there.
4. Somebody comes back, asks for the same work again (nothing is started twice),
   attaches at the event where the application had stopped reading, and awaits the end.
5. The whole timeline, in order, with the true outcome.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import aclosing
from pathlib import Path

from durable_supervisor import Command, Event, Limits, Observer, Supervisor

INDEXER = Path(__file__).with_name("indexer.py")
FILES, PAUSE = 120, 0.05
REQUEST = "index-stdlib"
TERMINAL = sys.stdout.isatty()


def request() -> Command:
    """The same work, asked for twice below: once by the application, once by whoever comes back."""
    # Resolved: two processes must say the same, and an interpreter does not always call itself the same.
    python = os.path.realpath(sys.executable)
    return Command(argv=[python, "-I", str(INDEXER), str(FILES), str(PAUSE)], cwd="/")


async def application(state_dir: str) -> None:
    """Runs in a process of its own and never gets to the end of this function."""
    async with Supervisor.open(state_dir) as sup:
        run = await sup.start(request(), request_id=REQUEST, limits=Limits(timeout=120))
        print(f"started {run.id}", flush=True)
        async for event in sup.follow(run.id):
            print(f"{event.seq} {describe(event)}", flush=True)


async def story(state_dir: str) -> int:
    run_id, cursor = step_application(state_dir)
    await step_nobody_there(state_dir, run_id)
    await step_come_back(state_dir, run_id, cursor)
    return await step_timeline(state_dir, run_id)


def step_application(state_dir: str) -> tuple[str, int]:
    """Start the application, read along for a moment, then kill it.  Returns run id and cursor."""
    title("An application starts a program, and reads its events")
    child = subprocess.Popen(
        [sys.executable, __file__, "application", state_dir], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    run_id = child.stdout.readline().split()[1]
    say(f"application pid {child.pid}, run {run_id}, request id {REQUEST}")
    cursor, shown = 0, 0
    for line in child.stdout:
        seq, _, text = line.rstrip("\n").partition(" ")
        cursor, shown = int(seq), shown + 1
        say(f"  event {seq:>3}  {text}")
        if shown == 12:
            break
    child.send_signal(signal.SIGKILL)
    child.wait()
    loud(f"kill -9 {child.pid}: the application is gone. It had read up to event {cursor}.")
    return run_id, cursor


async def step_nobody_there(state_dir: str, run_id: str) -> None:
    title("Nobody is there; the program goes on")
    async with Observer.open(state_dir) as observer:
        before = await observer.inspect(run_id)
        program, worker = before.program or {}, before.worker or {}
        say(f"state {before.state.value}, program {program.get('pid')}, worker {worker.get('pid')}")
        say(f"events in its log: {before.head}")
        deadline = time.monotonic() + 10
        now = before
        while now.head < before.head + 20 and time.monotonic() < deadline:
            await asyncio.sleep(0.1)
            now = await observer.inspect(run_id)
        say(f"a moment later:    {now.head}")


async def step_come_back(state_dir: str, run_id: str, cursor: int) -> None:
    title("Somebody comes back")
    async with Supervisor.open(state_dir) as sup:
        again = await sup.start(request(), request_id=REQUEST, limits=Limits(timeout=120))
        assert again.id == run_id
        say(f"the same request again: {again.admission} run, attempt {again.attempt}: not started twice")
        say(f"attach after event {cursor}:")
        shown = 0
        async with aclosing(sup.follow(run_id, after=cursor)) as events:
            async for event in events:
                assert event.seq == cursor + 1, "a gap or a duplicate"
                cursor, shown = event.seq, shown + 1
                if shown <= 4 or shown % 25 == 0:
                    say(f"  event {event.seq:>3}  {describe(event)}")
                if shown == 5:
                    say("  …")
        final = await sup.wait(run_id, timeout=60)
        loud(f"its end, awaited: {final.outcome}")


async def step_timeline(state_dir: str, run_id: str) -> int:
    title("The whole timeline, from the log")
    async with Observer.open(state_dir) as observer:
        seqs: list[int] = []
        after, end, skipped = 0, False, 0
        while not end:
            page = await observer.events(run_id, after=after, limit=50)
            after, end = page.next_after, page.end
            for event in page.events:
                seqs.append(event.seq)
                if event.kind == "output" and event.stream == "stdout" and 8 < event.seq < FILES:
                    skipped += 1
                    continue
                if skipped:
                    say(f"  {'':>14}… {skipped} more lines of output …")
                    skipped = 0
                say(f"  {event.elapsed_ns / 1e9:8.3f}s  {event.seq:>3}  {describe(event)}")
        final = await observer.inspect(run_id)
    gapless = seqs == list(range(1, len(seqs) + 1))
    receipt = final.receipt or {}
    say("")
    loud(f"{len(seqs)} events, each exactly once and in order: {'yes' if gapless else 'NO'}")
    loud(f"{final.outcome}, duration {receipt.get('duration')} s, survivors {receipt.get('survivors')}")
    return 0 if gapless and final.outcome is not None and final.outcome.code == 0 else 1


def describe(event: Event) -> str:
    if event.kind == "output":
        return f"{event.stream}: {event.text.rstrip()}"
    facts = {
        name: value
        for name, value in event.detail.items()
        if name in ("attempt", "canonical", "code", "signal", "reason", "outcome")
    }
    return f"{event.kind} {facts or ''}".rstrip()


def title(text: str) -> None:
    print(f"\n\033[1m== {text}\033[0m" if TERMINAL else f"\n== {text}", flush=True)


def loud(text: str) -> None:
    print(f"\033[32m{text}\033[0m" if TERMINAL else text, flush=True)


def say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["application"]:
        asyncio.run(application(sys.argv[2]))
    else:
        with tempfile.TemporaryDirectory(prefix="durable-demo-") as folder:
            place = os.path.join(folder, "state")
            sys.exit(asyncio.run(story(place)))
