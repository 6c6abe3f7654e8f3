"""Secrets never reach the disk, whole or in pieces; what is no secret is left alone."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from durable_supervisor import Command
from durable_supervisor.model.errors import ErrorCode, SupervisorError
from durable_supervisor.model.events import Kind
from tests.contract.runs import Runs
from tests.contract.test_output import PACKETS

SECRET = "correct-horse-battery-staple"


async def shown(runs: Runs, run_id: str) -> str:
    """Everything that any verb would print of this run."""
    events = (await runs.sup.events(run_id, limit=1000)).events
    forms = [one.to_dict() for one in events]
    documents: list[Any] = [
        (await runs.sup.inspect(run_id)).to_dict(),
        (await runs.sup.list()).to_dict(),
        [str(one) for one in await runs.sup.feed()],
    ]
    return json.dumps([forms, documents], ensure_ascii=False)


async def check_absent(runs: Runs, run_id: str, *secrets: str | bytes) -> None:
    stored, printed = runs.log_bytes(), await shown(runs, run_id)
    for secret in secrets:
        raw = secret if isinstance(secret, bytes) else secret.encode()
        assert raw not in stored
        assert json.dumps(raw.decode("utf-8", "replace"), ensure_ascii=False)[1:-1] not in printed


async def test_printed_whole_and_split_over_two_writes(runs: Runs) -> None:
    split = 'printf "<%.12s" "$KEY"; sleep .3; echo "${KEY#????????????}>"'
    script = f'echo "<$KEY>"; {split}; printf "$KEY" | base64'
    run = await runs.sh(script, secret_env={"KEY": SECRET})
    await runs.wait(run)
    lines = (await runs.output(run)).decode().splitlines()
    assert lines[:2] == ["<[redacted]>", "<[redacted]>"]
    assert base64.b64decode(lines[2]) == SECRET.encode()  # another encoding is not recognised
    await check_absent(runs, run.id, SECRET)


@pytest.mark.parametrize("fd", [1, 2])
async def test_printed_byte_by_byte(runs: Runs, fd: int) -> None:
    script = PACKETS + f"for byte in (os.environ['KEY'] + '|').encode() * 3: os.write({fd}, bytes([byte]))"
    run = await runs.python(script, secret_env={"KEY": SECRET})
    await runs.wait(run)
    assert await runs.output(run, {1: "stdout", 2: "stderr"}[fd]) == b"[redacted]|" * 3
    await check_absent(runs, run.id, SECRET)


@pytest.mark.parametrize(
    "secret",
    ["pässwörd-€-ключ", "two\nlines\nof a key\n", "with \t spaces", "aaaaaaaa", '"quoted\\"', "x" * 100_000],
    ids=["unicode", "lines", "spaces", "repetitive", "quotes", "long"],
)  # fmt: skip
async def test_secrets_of_any_shape(runs: Runs, secret: str) -> None:
    run = await runs.python(
        "import os; os.write(1, b'[' + os.environb[b'KEY'] + b']' + os.environb[b'KEY'])",
        secret_env={"KEY": secret},
    )
    await runs.wait(run)
    assert await runs.output(run) == b"[[redacted]][redacted]"
    await check_absent(runs, run.id, secret)


async def test_a_secret_that_is_not_utf8(runs: Runs) -> None:
    raw = b"\xff\xfe-not-text-\x80"
    secret = raw.decode("utf-8", "surrogateescape")
    run = await runs.start(["sh", "-c", 'printf "%s|$KEY" "$1"', "sh", secret], secret_env={"KEY": secret})
    await runs.wait(run)
    assert await runs.output(run) == b"[redacted]|[redacted]"
    await check_absent(runs, run.id, raw)


async def test_the_beginning_of_a_secret_is_not_swallowed(runs: Runs) -> None:
    run = await runs.sh("printf correct-horse", secret_env={"KEY": SECRET})
    await runs.wait(run)
    assert await runs.output(run) == b"correct-horse"


async def test_a_shorter_secret_in_the_beginning_of_a_longer_one(runs: Runs) -> None:
    """The stream ends where the longer one might still have gone on."""
    run = await runs.sh("printf 'x%s' correct-horse-battery", secrets=[SECRET, "horse-battery"])
    await runs.wait(run)
    assert b"horse-battery" not in runs.log_bytes()
    assert await runs.output(run) == b"xcorrect-[redacted]"


async def test_overlapping_secrets_leave_no_piece(runs: Runs) -> None:
    whole, halves = "abcdefgh-12345678-ijklmnop", ["abcdefgh-12345", "12345678-ijklmnop"]
    run = await runs.start(["echo", whole], secrets=halves)
    await runs.wait(run)
    assert await runs.output(run) == b"[redacted]\n"
    stored = runs.log_bytes()
    assert b"678-ijk" not in stored
    assert b"abcdef" not in stored


async def test_every_way_to_name_a_secret(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOST_API_KEY", "inherited-secret-value")
    run = await runs.sh(
        'echo "$MY_TOKEN $HOST_API_KEY $HIDDEN registered-secret-value"',
        env={"MY_TOKEN": "by-the-name-of-it"},
        inherit_env=["HOST_API_KEY"],
        secret_env={"HIDDEN": "by-declaration"},
        secrets=["registered-secret-value"],
    )
    await runs.wait(run)
    assert await runs.output(run) == b" ".join([b"[redacted]"] * 4) + b"\n"
    await check_absent(
        runs,
        run.id,
        "by-the-name-of-it",
        "inherited-secret-value",
        "by-declaration",
        "registered-secret-value",
    )


async def test_environment_values_are_never_stored_secret_or_not(runs: Runs) -> None:
    run = await runs.sh("exit 0", env={"PLAIN": "plain-value-0815", "TOKEN": "short"})
    await runs.wait(run)
    await check_absent(runs, run.id, "plain-value-0815")


async def test_in_argv_and_directory(runs: Runs, tmp_path: Path) -> None:
    folder = tmp_path / SECRET
    folder.mkdir()
    run = await runs.start(["sh", "-c", "pwd", SECRET, f"--key={SECRET}"], cwd=folder, secrets=[SECRET])
    seen = await runs.wait(run)
    assert list(seen.argv) == ["sh", "-c", "pwd", "[redacted]", "--key=[redacted]"]
    assert SECRET not in seen.cwd
    await check_absent(runs, run.id, SECRET)


@pytest.mark.parametrize("where", ["program", "directory"])
async def test_in_a_start_that_fails(runs: Runs, where: str) -> None:
    options: dict[str, Any] = {"cwd": f"/nowhere/{SECRET}"} if where == "directory" else {}
    argv = [f"/nowhere/{SECRET}"] if where == "program" else ["true"]
    run = await runs.start(argv, secrets=[SECRET], **options)
    assert run.state.value == "not_started"
    seen = await runs.sup.inspect(run.id)
    assert seen.reason == "ENOENT"
    [failed] = await runs.events(run, kinds={Kind.PROGRAM_EXEC_FAILED})
    assert failed.detail["path"] == "/nowhere/[redacted]"
    await check_absent(runs, run.id, SECRET)


@pytest.mark.parametrize(
    ("secret", "fields"),
    [
        ("tok-12345678", {"labels": {"key": "is tok-12345678"}}),
        ("tok-12345678", {"labels": {"tok-12345678": "x"}}),
        ("two\nlines-of-it", {"labels": {"key": "two\nlines-of-it"}}),
        ("it's-quoted\\", {"labels": {"key": "it's-quoted\\"}}),
        ("tok-12345678", {"request_id": "a-tok-12345678"}),
        ("tok-12345678", {"owner": "of:tok-12345678"}),
        ("tok-12345678", {"command": Command(argv=["true"], env={"X_tok-12345678": "1"})}),
    ],
)
async def test_what_would_be_stored_as_it_is_may_not_hold_one(
    runs: Runs, secret: str, fields: dict[str, Any]
) -> None:
    asked = {"command": Command(argv=["true"]), **fields}
    asked["command"] = asked["command"].replace(secrets=[secret])
    with pytest.raises(SupervisorError) as caught:
        await runs.sup.start(**asked)
    assert caught.value.code is ErrorCode.INVALID_REQUEST
    assert secret not in json.dumps(caught.value.to_dict(), ensure_ascii=False)
    assert secret.encode() not in runs.log_bytes()
    assert (await runs.sup.list()).runs == []


async def test_the_worker_shows_none_to_ps(runs: Runs) -> None:
    run = await runs.start(["sh", "-c", "read line"], secret_env={"KEY": SECRET}, stdin="open")
    worker = await runs.worker(run.id)
    for name in ("cmdline", "environ"):
        content = Path(f"/proc/{worker.pid}/{name}").read_bytes()
        assert SECRET.encode() not in content
    await runs.sup.write_stdin(run.id, b"\n")
    await runs.wait(run)


async def test_cut_output_holds_no_piece_of_one(runs: Runs) -> None:
    """Truncation comes after redaction: a cut can leave a piece of the mark, never of the secret."""
    script = "import os\nfor _ in range(500): os.write(1, os.environb[b'KEY'])"
    for on_limit in ("truncate", "terminate"):
        run = await runs.python(script, secret_env={"KEY": SECRET}, max_stdout_bytes=1003, on_limit=on_limit)
        await runs.wait(run)
        stored = runs.log_bytes()
        for begin in range(0, len(SECRET) - 8, 4):
            assert SECRET[begin : begin + 8].encode() not in stored


async def test_request_ids_stand_for_values_only_by_digest(runs: Runs) -> None:
    """The same request again is the same run; another value of a secret is another request."""
    command = Command(argv=["true"], secret_env={"KEY": SECRET})
    first = await runs.sup.start(command, request_id="r")
    again = await runs.sup.start(command, request_id="r")
    assert again.id == first.id
    with pytest.raises(SupervisorError) as caught:
        await runs.sup.start(Command(argv=["true"], secret_env={"KEY": SECRET + "!"}), request_id="r")
    assert caught.value.code is ErrorCode.IDEMPOTENCY_CONFLICT
    assert SECRET not in str(caught.value.to_dict())
    await check_absent(runs, first.id, SECRET)
