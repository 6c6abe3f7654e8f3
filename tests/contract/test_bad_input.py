"""Bad input: a typed error with a code and a next step, and nothing half-written."""

from __future__ import annotations

import math
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from durable_supervisor import Command, ErrorCode, Limits, Observer, OutcomeKind, RunState, SupervisorError
from tests.contract.hosts import check_error, refused, tree_of
from tests.contract.runs import Runs

NAN, INFINITE = math.nan, math.inf


def command(**fields: Any) -> Command:
    return Command(**{"argv": ["true"], **fields})


# Each makes one request wrong in one way; the field that the error must name.
WRONG: dict[str, tuple[str, Callable[[], dict[str, Any]]]] = {
    "empty argv": ("argv", lambda: {"command": command(argv=[])}),
    "argv is one string": ("argv", lambda: {"command": command(argv="ls -l")}),
    "empty program": ("argv[0]", lambda: {"command": command(argv=["", "x"])}),
    "NUL in argv": ("argv[1]", lambda: {"command": command(argv=["echo", "a\0b"])}),
    "more arguments than any kernel takes": ("argv", lambda: {"command": command(argv=["x"] * 700_001)}),
    "number in argv": ("argv[1]", lambda: {"command": command(argv=["echo", 5])}),
    "lone surrogate in argv": ("argv[1]", lambda: {"command": command(argv=["echo", "\ud800"])}),
    "NUL in env value": ("env[A]", lambda: {"command": command(env={"A": "x\0y"})}),
    "NUL in env name": ("env", lambda: {"command": command(env={"A\0B": "x"})}),
    "= in env name": ("env", lambda: {"command": command(env={"A=B": "x"})}),
    "empty env name": ("env", lambda: {"command": command(env={"": "x"})}),
    "LD_PRELOAD": ("env[LD_PRELOAD]", lambda: {"command": command(env={"LD_PRELOAD": "/x.so"})}),
    "LD_PRELOAD inherited": (
        "inherit_env[LD_PRELOAD]",
        lambda: {"command": command(inherit_env=["LD_PRELOAD"])},
    ),
    "NUL in cwd": ("cwd", lambda: {"command": command(cwd="/tmp/\0")}),
    "empty cwd": ("cwd", lambda: {"command": command(cwd="")}),
    "short secret": ("secret_env[TOKEN]", lambda: {"command": command(secret_env={"TOKEN": "1234567"})}),
    "too many secrets": (
        "secrets",
        lambda: {"command": command(secrets=[f"secret-{n}" for n in range(513)])},
    ),
    "short registered secret": ("secrets", lambda: {"command": command(secrets=["1234567"])}),
    "variable given twice": (
        "secret_env",
        lambda: {"command": command(env={"A": "x" * 9}, secret_env={"A": "y" * 9})},
    ),
    "stdin is text": ("stdin", lambda: {"command": command(stdin="text")}),
    "no command": ("command", lambda: {"command": ["true"]}),
    "request id with newline": ("request_id", lambda: {"request_id": "scan-17\n"}),
    "request id with space": ("request_id", lambda: {"request_id": "scan 17"}),
    "empty request id": ("request_id", lambda: {"request_id": ""}),
    "long request id": ("request_id", lambda: {"request_id": "x" * 129}),
    "request id with a slash": ("request_id", lambda: {"request_id": "a/b"}),
    "request id of other letters": ("request_id", lambda: {"request_id": "größe"}),
    "request id is a number": ("request_id", lambda: {"request_id": 17}),
    "negative timeout": ("limits.timeout", lambda: {"limits": Limits(timeout=-1)}),
    "zero timeout": ("limits.timeout", lambda: {"limits": Limits(timeout=0)}),
    "NaN timeout": ("limits.timeout", lambda: {"limits": Limits(timeout=NAN)}),
    "infinite timeout": ("limits.timeout", lambda: {"limits": Limits(timeout=INFINITE)}),
    "huge timeout": ("limits.timeout", lambda: {"limits": Limits(timeout=10**400)}),
    "NaN idle timeout": ("limits.idle_timeout", lambda: {"limits": Limits(idle_timeout=NAN)}),
    "negative grace": ("limits.grace", lambda: {"limits": Limits(grace=-0.1)}),
    "infinite grace": ("limits.grace", lambda: {"limits": Limits(grace=INFINITE)}),
    "no grace": ("limits.grace", lambda: {"limits": Limits(grace=None)}),  # type: ignore[arg-type]
    "negative output": ("limits.max_stdout_bytes", lambda: {"limits": Limits(max_stdout_bytes=-1)}),
    "no output": ("limits.max_stderr_bytes", lambda: {"limits": Limits(max_stderr_bytes=0)}),
    "fraction of a byte": ("limits.max_stderr_bytes", lambda: {"limits": Limits(max_stderr_bytes=1.5)}),  # type: ignore[arg-type]
    "unknown on_limit": ("limits.on_limit", lambda: {"limits": Limits(on_limit="explode")}),  # type: ignore[arg-type]
    "no limits": ("limits", lambda: {"limits": {"timeout": 5}}),
    "unknown completion": ("completion", lambda: {"completion": "sometimes"}),
    "label name": ("labels", lambda: {"labels": {"a b": "x"}}),
    "label value": ("labels[a]", lambda: {"labels": {"a": 5}}),
    "NUL in a label": ("labels[a]", lambda: {"labels": {"a": "\0"}}),
    "surrogate in a label": ("labels[a]", lambda: {"labels": {"a": "\udcff"}}),
    "too many labels": ("labels", lambda: {"labels": {f"n{n}": "" for n in range(65)}}),
    "empty owner": ("owner", lambda: {"owner": ""}),
    "NUL in owner": ("owner", lambda: {"owner": "a\0b"}),
    "surrogate in owner": ("owner", lambda: {"owner": "\ud800"}),
    "owner is a number": ("owner", lambda: {"owner": 5}),
    "secret in the request id": (
        "request_id",
        lambda: {"command": command(secrets=["hunter2hunter2"]), "request_id": "id-hunter2hunter2"},
    ),
    "secret in a label": (
        "labels",
        lambda: {"command": command(secrets=["hunter2hunter2"]), "labels": {"a": "hunter2hunter2"}},
    ),
}


async def test_every_wrong_field_is_named_and_nothing_is_written(runs: Runs) -> None:
    before = tree_of(runs.state_dir)
    for name, (field, make) in WRONG.items():
        with pytest.raises(SupervisorError) as caught:
            await runs.sup.start(**{"command": command(), **make()})
        check_error(caught.value, ErrorCode.INVALID_REQUEST)
        assert caught.value.details["field"] == field, (name, caught.value)
        assert field.split("[")[0] in caught.value.message, name
        assert "hunter2" not in str(caught.value.to_dict()), "never the value"
        assert "1234567" not in str(caught.value.to_dict())
    assert tree_of(runs.state_dir) == before
    assert (await runs.sup.list()).runs == []
    run = await runs.sup.start(command(), request_id="scan-17")
    assert run.attempt == 1, "a refusal spends no id"


@pytest.mark.parametrize(
    ("argv", "cwd", "errno_name"),
    [
        (["no-such-program-anywhere"], None, "ENOENT"),
        (["/no/such/program"], None, "ENOENT"),
        (["./relative/nothing"], None, "ENOENT"),
        (["true"], "/no/such/directory", "ENOENT"),
        (["true"], "/etc/passwd", "ENOTDIR"),
        (["/etc"], None, "EACCES"),
        (["/etc/passwd"], None, "EACCES"),
        (["/etc/passwd/x"], None, "ENOTDIR"),
        (["./no-format"], "FOLDER", "ENOEXEC"),
        (["./no-interpreter"], "FOLDER", "ENOENT"),
        (["./loop"], "FOLDER", "ELOOP"),
        (["/" + "x" * 5000], None, "ENAMETOOLONG"),
        (["true", "x" * 200_000], None, "E2BIG"),
        (["true", *(["x" * 100_000] * 100)], None, "E2BIG"),
    ],
)
async def test_what_cannot_be_executed_is_a_run_that_never_started(
    runs: Runs, tmp_path: Path, argv: list[str], cwd: str | None, errno_name: str
) -> None:
    (tmp_path / "no-format").write_text("")
    (tmp_path / "no-format").write_bytes(b"\0\1\2\3" * 100)
    (tmp_path / "no-interpreter").write_text("#!/no/such/interpreter\n")
    (tmp_path / "loop").symlink_to("loop")
    for name in ("no-format", "no-interpreter"):
        (tmp_path / name).chmod(0o755)
    where = str(tmp_path) if cwd == "FOLDER" else cwd
    run = await runs.sup.start(Command(argv=argv, cwd=where))
    assert run.state is RunState.NOT_STARTED
    final = await runs.wait(run)
    assert (final.state, final.outcome, final.receipt) == (RunState.NOT_STARTED, None, None)
    assert final.reason == errno_name
    assert final.retryable
    kinds = await runs.kinds(run)
    assert kinds[-1] == "run.not_started"
    assert "program.released" not in kinds or "program.exec_failed" in kinds


async def test_a_big_command_line_that_the_kernel_takes_is_taken(runs: Runs) -> None:
    """1.2 MB of arguments and environment: in the header, in the journal and in the program."""
    argv = [f"{n:05d}" + "y" * 9_000 for n in range(60)]
    env = {f"NAME_{n}": "z" * 9_000 for n in range(60)}
    run = await runs.sup.start(
        Command(
            argv=["sh", "-c", 'echo $#; echo ${#NAME_59}; printf %s "${60}" | wc -c', "sh", *argv], env=env
        )
    )
    final = await runs.wait(run)
    assert final.outcome is not None
    assert await runs.output(run) == b"60\n9000\n9005\n"
    assert list((await runs.sup.inspect(run.id)).argv)[4:] == argv
    async with Observer.open(runs.state_dir) as seen:
        assert (await seen.inspect(run.id)).state is RunState.FINISHED
    same = await runs.sup.start(Command(argv=list(final.argv), env=env), request_id=run.request_id)
    assert same.id == run.id


async def test_arguments_full_of_what_separates_values_are_arguments(runs: Runs) -> None:
    argv = ["true", *["," * 120_000] * 10]
    run = await runs.sup.start(Command(argv=argv))
    final = await runs.wait(run)
    assert final.outcome is not None
    assert final.outcome.code == 0
    assert list(final.argv) == argv


@pytest.mark.parametrize(
    "run_id",
    [
        "",
        " ",
        "nope",
        "0" * 16,
        "z" * 16,
        "../../etc",
        "a/b",
        "%",
        "_",
        "*",
        "\0",
        "\ud800",
        "é" * 16,
        "x" * 10_000,
        "\n",
    ],
)
async def test_an_unknown_run_is_unknown_to_every_verb(runs: Runs, run_id: str) -> None:
    sup = runs.sup
    await runs.wait(await runs.sh("exit 0"))
    calls: list[Callable[[], Any]] = [
        lambda: sup.inspect(run_id),
        lambda: sup.events(run_id),
        lambda: anext(sup.follow(run_id)),
        lambda: sup.wait(run_id, timeout=1),
        lambda: sup.stop(run_id),
        lambda: sup.signal(run_id, 15),
        lambda: sup.write_stdin(run_id, b"x"),
        lambda: sup.resolve(run_id),
        lambda: sup.attach(run_id).__aenter__(),
    ]
    for call in calls:
        async with refused(ErrorCode.UNKNOWN_RUN) as caught:
            await call()
        assert len(caught().message) < 300
        assert caught().message.encode("utf-8"), "fit to print"


async def test_a_run_that_is_no_text_is_a_typed_error_too(runs: Runs) -> None:
    run = await runs.sh("exit 0")
    for wrong in (None, 5, b"bytes", run):
        async with refused(ErrorCode.INVALID_REQUEST):
            await runs.sup.inspect(wrong)  # type: ignore[arg-type]
    await runs.wait(run)


async def test_wrong_arguments_of_the_other_verbs(runs: Runs) -> None:
    sup = runs.sup
    run = await runs.sh("read line", stdin="open")
    calls: dict[str, Callable[[], Any]] = {
        "after": lambda: sup.events(run.id, after=-1),
        "limit 0": lambda: sup.events(run.id, limit=0),
        "limit -1": lambda: sup.events(run.id, limit=-1),
        "limit huge": lambda: sup.events(run.id, limit=10**9),
        "follow after": lambda: anext(sup.follow(run.id, after=-5)),
        "list limit": lambda: sup.list(limit=0),
        "feed limit": lambda: sup.feed(limit=0),
        "feed after": lambda: sup.feed(after=-1),
        "grace": lambda: sup.stop(run.id, grace=-1),
        "grace NaN": lambda: sup.stop(run.id, grace=NAN),
        "stop timeout": lambda: sup.stop(run.id, timeout=NAN),
        "wait timeout": lambda: sup.wait(run.id, timeout=NAN),
        "wait timeout negative": lambda: sup.wait(run.id, timeout=-1),
        "signal 0": lambda: sup.signal(run.id, 0),
        "signal 999": lambda: sup.signal(run.id, 999),
        "signal target": lambda: sup.signal(run.id, 15, target="everybody"),
        "signal timeout": lambda: sup.signal(run.id, 15, timeout=NAN),
        "stdin timeout": lambda: sup.write_stdin(run.id, b"x", timeout=NAN),
        "action": lambda: sup.resolve(run.id, "guess"),
        "note": lambda: sup.resolve(run.id, note="x" * 5000),
    }
    for name, call in calls.items():
        try:
            await call()
        except SupervisorError as error:
            check_error(error, ErrorCode.INVALID_REQUEST)
        else:
            raise AssertionError(name)
    assert (await sup.inspect(run.id)).state is RunState.RUNNING, "none of them did anything"
    assert not [kind for kind in await runs.kinds(run) if kind.startswith("control")]
    await sup.write_stdin(run.id, b"", eof=True)
    await runs.wait(run)


# An argument of the wrong type or beyond all bounds, by verb; the name that the error must give.
ODD: list[tuple[str, str, dict[str, Any]]] = [
    *(("events", "after", {"after": odd}) for odd in ("1", None, 1.0, True, 1 << 63)),
    *(("events", "limit", {"limit": odd}) for odd in ("1", None, 1.0, True, 1 << 63)),
    *(("events", "kinds", {"kinds": odd}) for odd in ("output", b"output", 3, [3])),
    *(("feed", "after", {"after": odd}) for odd in ("1", None, 1 << 63)),
    ("feed", "limit", {"limit": None}),
    *(("list", "before", {"before": odd}) for odd in ("1", -1, 1 << 63)),
    ("list", "limit", {"limit": "1"}),
    *(("list", "states", {"states": odd}) for odd in ("running", ["no such state"], 3, [3])),
    *(("list", "label", {"label": odd}) for odd in ("team", ("team",), ("team", 3), ["team", "infra"])),
    *(("signal", "signal", {"signo": odd}) for odd in ("TERMINATE", "", (), True, 0, -1)),
    *(("write_stdin", "data", {"data": odd}) for odd in ("text", None, 3)),
]


async def test_an_argument_of_the_wrong_type_is_named(runs: Runs) -> None:
    run = await runs.start(["cat"], stdin="open")
    for verb, field, arguments in ODD:
        of_run = () if verb in ("feed", "list") else (run.id,)
        async with refused(ErrorCode.INVALID_REQUEST) as caught:
            await getattr(runs.sup, verb)(*of_run, **arguments)
        assert caught().details["field"] == field, (verb, arguments)
    assert not [kind for kind in await runs.kinds(run) if kind.startswith("control")]
    await runs.sup.write_stdin(run.id, bytearray(b"bytes of any kind"), eof=True)
    await runs.wait(run)
    assert await runs.output(run) == b"bytes of any kind"


async def test_states_may_be_given_by_their_words(runs: Runs) -> None:
    run = await runs.start(["true"])
    await runs.wait(run)
    await runs.sup.reconcile()
    assert [one.id for one in (await runs.sup.list(states=["finished"])).runs] == [run.id]  # type: ignore[list-item]


async def test_a_state_directory_that_is_no_path_is_refused() -> None:
    async with refused(ErrorCode.STATE_DIR_REFUSED):
        Observer.open(3)  # type: ignore[arg-type]


async def test_a_timeout_of_nothing_asks_once(runs: Runs) -> None:
    run = await runs.sh("read line", stdin="open")
    async with refused(ErrorCode.WAIT_TIMEOUT) as caught:
        await runs.sup.wait(run.id, timeout=0)
    assert caught().retryable
    await runs.sup.write_stdin(run.id, b"", eof=True)
    await runs.wait(run)
    assert (await runs.sup.wait(run.id, timeout=0)).state is RunState.FINISHED


async def test_a_conflict_names_the_fields_and_starts_nothing(runs: Runs) -> None:
    base: dict[str, Any] = {
        "argv": ["sh", "-c", "exit 3"],
        "cwd": "/tmp",
        "env": {"A": "one"},
        "stdin": b"in",
    }
    first = await runs.sup.start(Command(**base), request_id="one", limits=Limits(timeout=60))
    await runs.wait(first)
    changes: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
        "argv": ({"argv": ["sh", "-c", "exit 4"]}, {}),
        "cwd": ({"cwd": "/"}, {}),
        "env": ({"env": {"A": "two"}}, {}),
        "stdin": ({"stdin": b"other"}, {}),
        "inherit_env": ({"inherit_env": ["EDITOR"]}, {}),
        "limits": ({}, {"limits": Limits(timeout=61)}),
        "completion": ({}, {"completion": "tree"}),
    }
    for field, (other, options) in changes.items():
        async with refused(ErrorCode.IDEMPOTENCY_CONFLICT) as caught:
            await runs.sup.start(
                Command(**{**base, **other}), **{"request_id": "one", "limits": Limits(timeout=60), **options}
            )
        named = caught().details["fields"]
        assert isinstance(named, list)
        assert [name for name in named if field in str(name)], (field, named)
        assert caught().details["run_id"] == first.id
        assert "two" not in str(caught().to_dict())
    assert len((await runs.sup.list()).runs) == 1
    theirs = await runs.sup.start(Command(argv=["true"]), request_id="one", owner="somebody")
    assert theirs.id != first.id, "ids are an owner's own"
    await runs.wait(theirs)


async def test_an_upgraded_program_behind_the_same_name_is_no_conflict(runs: Runs, tmp_path: Path) -> None:
    program = tmp_path / "tool"
    program.write_text("#!/bin/sh\nexit 1\n")
    program.chmod(0o755)
    first = await runs.sup.start(Command(argv=[str(program)]), request_id="one")
    await runs.wait(first)
    program.write_text("#!/bin/sh\nexit 2\n")
    again = await runs.sup.start(Command(argv=[str(program)]), request_id="one")
    assert (again.id, again.state) == (first.id, RunState.FINISHED)


async def test_a_missing_program_that_comes_later_runs_once(runs: Runs, tmp_path: Path) -> None:
    program, ledger = tmp_path / "late", tmp_path / "ledger"
    request = Command(argv=[str(program), str(ledger)])
    first = await runs.sup.start(request, request_id="one")
    assert (first.state, first.attempt) == (RunState.NOT_STARTED, 1)
    program.write_text('#!/bin/sh\necho ran >> "$1"\n')
    program.chmod(0o755)
    second = await runs.sup.start(request, request_id="one")
    assert (second.id, second.attempt, second.admission) == (first.id, 2, "retry")
    final = await runs.wait(second)
    assert final.outcome is not None
    assert final.outcome.kind is OutcomeKind.EXITED
    third = await runs.sup.start(request, request_id="one")
    assert (third.id, third.attempt, third.admission) == (first.id, 2, "existing")
    assert ledger.read_text() == "ran\n"
    events = await runs.events(first)
    assert [event.seq for event in events] == list(range(1, len(events) + 1)), (
        "one sequence over both attempts"
    )


async def test_bad_requests_are_not_in_the_journal(runs: Runs) -> None:
    with pytest.raises(SupervisorError):
        await runs.sup.start(command(), request_id="bad id")
    with sqlite3.connect(f"file:{runs.state_dir}/journal.db?mode=ro", uri=True) as conn:
        assert conn.execute("SELECT count(*) FROM runs").fetchone() == (0,)
    conn.close()
    assert not [name for _, _, names in os.walk(runs.state_dir / "runs") for name in names]
