"""What looks like a credential stays off the disk, whoever brings it; the program has the true bytes."""

from __future__ import annotations

import hashlib
import sys

import pytest

from durable_supervisor import Command, Terminal
from durable_supervisor.model.errors import ErrorCode, SupervisorError
from tests.contract.runs import Runs
from tests.contract.test_secrets import check_absent
from tests.support import PATIENCE

BODY = "Zq7Zq7wE3wE3rT5rT5yU8yU8iO2iO2pA4pA4"
TOKEN = f"ghp_{BODY}"


@pytest.mark.parametrize("fd", [1, 2])
async def test_printed_in_pieces(runs: Runs, fd: int) -> None:
    """Its prefix goes out before the body has come."""
    script = f"""
import os, sys, time
for piece in ("token=gh", "p_", sys.argv[1][:10], sys.argv[1][10:], " done"):
    os.write({fd}, piece.encode())
    time.sleep(0.05)
os.write({3 - fd}, __import__("hashlib").sha256(sys.argv[1].encode()).hexdigest().encode())
"""
    run = await runs.start([sys.executable, "-c", script, BODY], secret_env={})
    await runs.wait(run)
    names = {1: "stdout", 2: "stderr"}
    assert await runs.output(run, names[fd]) == b"token=ghp_[redacted] done"
    assert await runs.output(run, names[3 - fd]) == hashlib.sha256(BODY.encode()).hexdigest().encode()


async def test_printed_and_given_as_an_argument(runs: Runs) -> None:
    run = await runs.start(["printf", "%s\n", TOKEN, f"https://me:{BODY}@host/x", f"Bearer {BODY}"])
    await runs.wait(run)
    shown = ["ghp_[redacted]", "https://me:[redacted]@host/x", "Bearer [redacted]"]
    assert (await runs.output(run)).decode().splitlines() == shown
    assert list((await runs.sup.inspect(run.id)).argv[2:]) == shown
    await check_absent(runs, run.id, BODY)


async def test_typed_at_a_terminal(runs: Runs) -> None:
    run = await runs.sh(f"printf 'key: sk-%s\\n' {BODY}; printf '$ '", pty=Terminal())
    await runs.wait(run)
    assert await runs.output(run) == b"key: sk-[redacted]\r\n$ "


async def test_a_program_that_is_not_there(runs: Runs) -> None:
    run = await runs.start([f"/nowhere/{TOKEN}"])
    seen = await runs.sup.wait(run.id, timeout=PATIENCE)
    assert seen.argv == ("/nowhere/ghp_[redacted]",)
    await check_absent(runs, run.id, BODY)


async def test_not_for_who_does_not_want_it(runs: Runs) -> None:
    """The registered values stay off the disk all the same."""
    run = await runs.start(
        ["sh", "-c", 'echo "$1 $KEY"', "sh", TOKEN], redact_tokens=False, secret_env={"KEY": "pa55-word-here"}
    )
    await runs.wait(run)
    assert await runs.output(run) == f"{TOKEN} [redacted]\n".encode()
    assert (await runs.sup.inspect(run.id)).argv[-1] == TOKEN
    await check_absent(runs, run.id, "pa55-word-here")


async def test_another_token_is_another_request(runs: Runs) -> None:
    """What is shown of both is the same; what is asked is not."""
    await runs.sup.start(Command(argv=["true", TOKEN]), request_id="one")
    with pytest.raises(SupervisorError) as refused:
        await runs.sup.start(Command(argv=["true", f"ghp_{BODY[::-1]}"]), request_id="one")
    assert refused.value.code is ErrorCode.IDEMPOTENCY_CONFLICT
