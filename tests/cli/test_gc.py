"""``gc`` for people and for scripts."""

from __future__ import annotations

import pytest

from durable_supervisor import Command, Supervisor
from tests.cli.helpers import Cli
from tests.gc.aging import age
from tests.support import PATIENCE


async def ended(cli: Cli, *names: str) -> list[str]:
    """A run for each name, which is its request id and label; over for long."""
    ids = []
    async with Supervisor.open(cli.state_dir) as sup:
        for name in names:
            command = Command(argv=["sh", "-c", f"echo {name}; exit 3"])
            run = await sup.start(command, request_id=name, labels={"name": name})
            await sup.wait(run.id, timeout=PATIENCE)
            ids.append(run.id)
        await sup.reconcile()
    age(cli.state_dir)
    return ids


async def test_a_plan_then_the_deed(cli: Cli) -> None:
    one, two = await ended(cli, "one", "two")
    plan = cli("gc", "--older-than", "30m", "--label", "name=one")
    assert plan.code == 0
    assert one in plan.stdout
    assert two not in plan.stdout
    assert "would collect 1 run," in plan.stdout
    assert "kept: other label 1" in plan.stdout
    assert "--apply" in plan.stderr
    done = cli.ok("gc", "--older-than", "30m", "--label", "name=one", "--apply", "--json").document
    assert (done["applied"], done["count"], done["left"]) == (True, 1, 0)
    logs = cli("logs", "--json", one)
    assert (logs.code, logs.error["code"]) == (3, "RUN_COLLECTED")
    assert "its log is gone" in cli.ok("inspect", one).stdout
    assert one not in cli.ok("list").stdout
    assert one in cli.ok("list", "--collected").stdout
    assert cli("wait", one).code == 3


async def test_recover_says_that_ids_of_collected_runs_are_lost(cli: Cli) -> None:
    await ended(cli, "one", "two")
    cli.ok("gc", "--older-than", "30m", "--apply")
    lines = cli.state_dir / "runs" / "collected.log"
    whole = lines.read_bytes()
    for name in ("journal.db", "journal.db-wal", "journal.db-shm"):
        (cli.state_dir / name).unlink(missing_ok=True)
    lines.write_bytes(whole.replace(b"one", b"onf", 1))
    result = cli("recover", "--json")
    assert (result.code, result.document["damaged_tombstones"]) == (1, 1)
    assert "warning: 1 of the lines" in result.stderr


@pytest.mark.parametrize(
    "words", [[], ["--keep", "x"], ["--max-size", "much"], ["--older-than", "-1"], ["--label", "name"]]
)
def test_what_is_asked_must_make_sense(cli: Cli, words: list[str]) -> None:
    result = cli("gc", "--json", "--apply", *words)
    assert (result.code, result.error["code"]) == (2, "INVALID_REQUEST")
