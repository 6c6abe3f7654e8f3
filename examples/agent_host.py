"""A small agent host, with all that it reaches for daily: ``python examples/agent_host.py``.

1. `run`: a tool with a policy.  It may read one folder, and reach nobody; what was enforced is told.
2. `run` again: a tool that never ends, leaves a daemon behind, and is over at its deadline all the same.
3. `stream`: the lines of a long tool as they come, until the host has seen enough.
4. `spawn`: an agent that is talked to.
5. The journal afterwards: every run, with its true outcome.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from pathlib import Path
from textwrap import indent

import durable_supervisor
from durable_supervisor import Command, Grant, Limits, Policy, RunResult, Session, run, spawn, stream

PYTHON = os.path.realpath(sys.executable)
TERMINAL = sys.stdout.isatty()

# What an agent's tool may do, and what it tries.
TOOL = """
import pathlib, socket
print(len(pathlib.Path("notes.txt").read_text().splitlines()), "lines of notes")
for what, attempt in {
    "write beside them": lambda: pathlib.Path("more.txt").write_text("x"),
    "read the passwords": lambda: pathlib.Path("/etc/shadow").read_text(),
    "call home": lambda: socket.create_connection(("192.0.2.1", 80), timeout=1),
}.items():
    try:
        attempt()
        print(f"it could {what}!")
    except OSError as error:
        print(f"it could not {what}: {error.strerror}")
"""

# An agent: it answers each line that it is told, until it is told no more.
AGENT = """
import sys
for number, line in enumerate(sys.stdin, start=1):
    print(f"({number}) you said {line.strip()!r}", flush=True)
print("goodbye", flush=True)
"""


def python(code: str, **options: object) -> Command:
    """One that starts in a hundredth of a second, and needs nothing but the standard library."""
    return Command(argv=[PYTHON, "-I", "-S", "-c", code], **options)  # type: ignore[arg-type]


async def confined_tool(host: Session, folder: Path) -> None:
    title("run: a tool that may read one folder, and reach nobody")
    policy = Policy(
        network="none",
        filesystem=[Grant(folder, "read"), Grant(os.path.realpath(sys.base_prefix), "execute")],
        enforcement="best_effort",  # "required" would refuse to start it where this machine cannot
    )
    tool = python(TOOL, cwd=folder, timeout=20, max_stdout_bytes=64 * 1024)
    result = await run(tool, policy=policy, supervisor=host)
    say(indent(result.stdout_text().rstrip(), "  "))
    say("")
    for axis, report in result.enforcement.items():
        asked, applied = report["requested"], report["applied"]
        if asked is not None or axis == "tree":
            why = report["reason"] or report["mechanism"] or ""
            say(f"  {axis:<11} {applied!s:<8} {why}")
    loud(ended(result))


async def deadline(host: Session) -> None:
    title("run: a tool that would never end, and leaves a daemon behind")
    began = time.monotonic()
    script = "(setsid sleep 1000 &) ; echo working; sleep 1000"
    result = await run(Command(argv=["sh", "-c", script], timeout=0.5), supervisor=host)
    loud(f"{ended(result)}, after {time.monotonic() - began:.1f} s; left alive: {len(result.survivors)}")


async def enough(host: Session) -> None:
    title("stream: the lines of a long tool, until the host has seen enough")
    tool = Command(argv=["sh", "-c", "n=0; while :; do n=$((n+1)); echo line $n; done"])
    async with stream(tool, supervisor=host) as events:
        async for line in events.lines():
            if line.text == "line 3":
                break
            say(f"  {line.stream}: {line.text}")
        loud("enough: leaving the context ends it, and returns when nothing of it is left")


async def conversation(host: Session) -> None:
    title("spawn: an agent that is talked to")
    async with spawn(python(AGENT), limits=Limits(idle_timeout=30), supervisor=host) as agent:
        for words in ("hello", "what is new?"):
            await agent.write_stdin(words.encode() + b"\n")
        await agent.close_stdin()
        async for event in agent.events():
            if event.kind == "output":
                say(indent(event.text.rstrip(), "  "))
        result = await agent.wait()
    loud(ended(result))


async def journal(host: Session) -> None:
    title("The journal: every run, with its true outcome")
    for entry in reversed((await host.list()).runs):
        say(f"  {entry.id[:8]}  {entry.state.value}  {entry.outcome}")


def ended(result: RunResult) -> str:
    code = result.exit_code if result.exit_code is not None else f"signal {result.signal}"
    return f"{result.reason.value} ({code})"


def title(text: str) -> None:
    print(f"\n\033[1m== {text}\033[0m" if TERMINAL else f"\n== {text}", flush=True)


def loud(text: str) -> None:
    print(f"\033[32m{text}\033[0m" if TERMINAL else text, flush=True)


def say(text: str) -> None:
    print(text, flush=True)


async def main(folder: Path) -> None:
    work = folder / "work"
    work.mkdir()
    (work / "notes.txt").write_text("one\ntwo\nthree\n")
    # Without `supervisor=host` the calls use one of the process's own, in the user's state directory.
    async with durable_supervisor.open(folder / "state") as host:
        await confined_tool(host, work)
        await deadline(host)
        await enough(host)
        await conversation(host)
        await journal(host)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="agent-host-") as place:
        asyncio.run(main(Path(place)))
