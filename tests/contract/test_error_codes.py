"""Every error code: each is raised and each has a test; those that no other test asks for, here."""

from __future__ import annotations

import re
from pathlib import Path

from durable_supervisor import Command, ErrorCode, Supervisor
from tests.contract.hosts import ROOT, refused
from tests.contract.runs import Runs

HERE = Path(__file__).name


def test_every_error_code_has_a_test() -> None:
    """Somewhere in the suites, in a test that is not about the list of codes itself."""
    lists = {HERE, "test_errors.py", "test_docs.py", "test_exit_codes.py", "test_wire.py"}
    sources = [path.read_text() for path in (ROOT / "tests").rglob("*.py") if path.name not in lists]
    missing = [
        code.value
        for code in ErrorCode
        if not any(re.search(rf"(ErrorCode\.|[\"']){code.value}\b", text) for text in sources)
    ]
    mine = Path(__file__).read_text()
    assert [code for code in missing if f"refused(ErrorCode.{code})" not in mine] == []


def test_every_error_code_is_raised_by_the_product() -> None:
    sources = [path.read_text() for path in (ROOT / "src").rglob("*.py") if path.name != "exit_codes.py"]
    unused = [
        code.value for code in ErrorCode if sum(f"ErrorCode.{code.value}" in text for text in sources) == 0
    ]
    assert unused == []


async def test_an_ambiguous_beginning_names_the_candidates(runs: Runs) -> None:
    found: dict[str, list[str]] = {}
    for _ in range(40):
        run = await runs.sup.start(Command(argv=["/no/such/program"]))
        found.setdefault(run.id[0], []).append(run.id)
        if len(found[run.id[0]]) > 1:
            break
    first = next(letter for letter, ids in found.items() if len(ids) > 1)
    async with refused(ErrorCode.AMBIGUOUS_RUN) as caught:
        await runs.sup.inspect(first)
    assert caught().details["candidates"] == sorted(found[first])
    whole = found[first][0]
    assert (await runs.sup.inspect(whole.upper())).id == whole, "an id may be written in capitals"
    assert (await runs.sup.inspect(whole[:12])).id == whole


async def test_resolving_what_is_known_is_refused(runs: Runs) -> None:
    run = await runs.sh("exit 0")
    await runs.wait(run)
    async with refused(ErrorCode.NOT_RESOLVABLE):
        await runs.sup.resolve(run.id)


async def test_controls_of_what_is_over(runs: Runs) -> None:
    run = await runs.sh("exit 0")
    await runs.wait(run)
    async with refused(ErrorCode.NOT_RUNNING):
        await runs.sup.signal(run.id, 15)
    async with refused(ErrorCode.NOT_RUNNING):
        await runs.sup.write_stdin(run.id, b"x")
    receipt = await runs.sup.stop(run.id)
    assert (receipt.result, receipt.confirmed) == ("already_ended", True)


async def test_stdin_that_was_never_open(runs: Runs) -> None:
    run = await runs.sh("echo on; exec sleep 20", stdin=b"given")
    await runs.printed(run, b"on\n")
    async with refused(ErrorCode.STDIN_CLOSED):
        await runs.sup.write_stdin(run.id, b"x")
    async with refused(ErrorCode.STDIN_CLOSED):
        await runs.sup.write_stdin(run.id, b"")
    await runs.sup.stop(run.id)


async def test_closed_is_closed(state_dir: Path) -> None:
    sup = await Supervisor.open(state_dir)
    await sup.close()
    async with refused(ErrorCode.SUPERVISOR_CLOSED):
        await sup.start(Command(argv=["true"]))
