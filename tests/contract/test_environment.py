"""What a program finds: environment, directory, descriptors, signals, umask, and which file is run."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import durable_supervisor
from durable_supervisor import Command
from durable_supervisor.model.environment import BASE_NAMES, DEFAULT_PATH
from durable_supervisor.model.events import Kind
from tests.contract.runs import Runs
from tests.support import eventually_async

SOURCE = Path(durable_supervisor.__file__).parents[1]


async def environment(runs: Runs, **options: Any) -> dict[bytes, bytes]:
    run = await runs.start(["/usr/bin/env", "-0"], **options)
    await runs.wait(run)
    pairs = (await runs.output(run)).split(b"\0")[:-1]
    return {name: value for name, _, value in (pair.partition(b"=") for pair in pairs)}


async def test_a_small_base_and_nothing_else_of_the_hosts(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOST_ONLY", "x")
    monkeypatch.setenv("PYTHONPATH", "/nowhere")
    monkeypatch.setenv("TZ", "Europe/Zurich")
    monkeypatch.delenv("SHELL", raising=False)
    found = await environment(runs)
    expected = {name: os.environ[name] for name in BASE_NAMES if name in os.environ}
    run_id = found.pop(b"DURABLE_SUPERVISOR_RUN_ID")
    assert found == {name.encode(): os.fsencode(value) for name, value in expected.items()}
    assert found[b"TZ"] == b"Europe/Zurich"
    assert run_id.decode() == (await runs.sup.list()).runs[0].id


async def test_a_host_without_a_path_still_finds_programs(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PATH")
    found = await environment(runs)
    assert found[b"PATH"] == DEFAULT_PATH.encode()


async def test_later_sources_win_and_absent_names_stay_absent(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANTED", "of the host")
    monkeypatch.setenv("ONE", "of the host")
    monkeypatch.delenv("NOT_THERE", raising=False)
    found = await environment(
        runs,
        inherit_env=["WANTED", "ONE", "NOT_THERE"],
        env={"ONE": "given", "HOME": "/srv", "EMPTY": "", "DURABLE_SUPERVISOR_RUN_ID": "forged"},
        secret_env={"HIDDEN": "a value to hide"},
    )
    assert found[b"WANTED"] == b"of the host"
    assert found[b"ONE"] == b"given"
    assert found[b"HOME"] == b"/srv"
    assert found[b"EMPTY"] == b""
    assert found[b"HIDDEN"] == b"[redacted]"  # what it printed passed the redaction
    assert b"NOT_THERE" not in found
    assert found[b"DURABLE_SUPERVISOR_RUN_ID"] != b"forged"


async def test_bytes_that_are_no_text_pass_through(runs: Runs) -> None:
    value = b"\xff\x80=x\n".decode("utf-8", "surrogateescape")
    found = await environment(runs, env={"ODD": value, "na me.ü": "1"})
    assert found[b"ODD"] == b"\xff\x80=x\n"
    assert found["na me.ü".encode()] == b"1"
    run = await runs.start(["printf", "%s", value])
    await runs.wait(run)
    assert await runs.output(run) == b"\xff\x80=x\n"


async def test_failpoints_are_not_the_programs_business(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DURABLE_SUPERVISOR_FAILPOINTS", "nowhere=kill")
    assert not [name for name in await environment(runs) if name.startswith(b"DURABLE_SUPERVISOR_F")]


# Nesting.


async def test_a_run_started_inside_a_run_says_so(runs: Runs, tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    inner.mkdir(mode=0o700)
    script = """
import asyncio, json, sys
from durable_supervisor import Command, Supervisor
async def main():
    async with Supervisor.open(sys.argv[1]) as sup:
        run = await sup.start(Command(argv=["true"]))
        print(json.dumps(run.to_dict()))
        await sup.wait(run.id, timeout=60)
asyncio.run(main())
"""
    run = await runs.start(
        [sys.executable, "-c", script, str(inner)], env={"PYTHONPATH": str(SOURCE)}, completion="leader"
    )
    receipt = await runs.receipt(run)
    assert receipt["outcome"]["code"] == 0, await runs.output(run, "stderr")
    assert json.loads(await runs.output(run))["nested_in"] == run.id
    assert run.nested_in is None


@pytest.mark.parametrize("value", ["", "short", "../../../../etc/x", "a" * 17])
async def test_a_forged_outer_run_is_not_believed(
    runs: Runs, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv("DURABLE_SUPERVISOR_RUN_ID", value)
    assert (await runs.sh("exit 0")).nested_in is None


# Descriptors, signals, session, umask.


async def test_the_program_has_three_descriptors(runs: Runs, tmp_path: Path) -> None:
    leaks = [os.open(tmp_path, os.O_RDONLY) for _ in range(3)]
    leaks.append(os.memfd_create("leak", 0))
    for fd in leaks:
        os.set_inheritable(fd, True)  # as careless libraries of the host do
    try:
        for stdin in (None, b"x", "open"):
            run = await runs.python(
                "import os\nnames = os.listdir('/proc/self/fd')\n"
                "print(sorted(int(one) for one in names if os.path.lexists('/proc/self/fd/' + one)))",
                stdin=stdin,
            )
            await runs.wait(run)
            assert await runs.output(run) == b"[0, 1, 2]\n"
    finally:
        for fd in leaks:
            os.close(fd)


@contextmanager
def odd_signals() -> Iterator[None]:
    """A host that ignores some signals and blocks others."""
    ignored = [signal.SIGUSR2, signal.SIGHUP, signal.SIGPIPE, signal.SIGTSTP]
    before = {signo: signal.signal(signo, signal.SIG_IGN) for signo in ignored}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGUSR1, signal.SIGCHLD})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for signo, handler in before.items():
            signal.signal(signo, handler)


async def test_signals_are_all_at_their_defaults(runs: Runs) -> None:
    with odd_signals():
        run = await runs.start(["grep", "Sig", "/proc/self/status"])
    await runs.wait(run)
    rows = dict(line.split(b":\t") for line in (await runs.output(run)).splitlines())
    c_library = 1 << 31 | 1 << 32  # signals 32 and 33, which posix_spawn(3) of glibc sets to be ignored
    assert [int(rows[name], 16) & ~c_library for name in (b"SigBlk", b"SigIgn", b"SigPnd")] == [0, 0, 0]


async def test_program_and_worker_lead_sessions_of_their_own(runs: Runs) -> None:
    run = await runs.python("import os; print(os.getpid(), os.getsid(0), os.getpgid(0), os.getppid())")
    worker = await runs.worker(run.id)
    await runs.wait(run)
    pid, session, group, parent = map(int, (await runs.output(run)).split())
    assert pid == session == group != parent
    assert parent == worker.pid != os.getsid(0)


async def test_the_hosts_umask_at_the_start_reaches_the_program(runs: Runs, tmp_path: Path) -> None:
    for mask in (0o000, 0o027, 0o077):
        made = tmp_path / f"made-{mask:o}"
        previous = os.umask(mask)
        try:
            run = await runs.sh(f"umask; : > {made}")
        finally:
            os.umask(previous)
        await runs.wait(run)
        assert int(await runs.output(run), 8) == mask
        assert stat.S_IMODE(made.stat().st_mode) == 0o666 & ~mask


async def test_a_start_whose_caller_has_gone_keeps_the_umask_of_its_call(runs: Runs, tmp_path: Path) -> None:
    previous, printed = os.umask(0o077), tmp_path / "umask"
    call = asyncio.create_task(runs.sh(f"umask > {printed}.new; mv {printed}.new {printed}"))
    await asyncio.sleep(0)  # it has asked
    call.cancel()
    os.umask(previous)
    await eventually_async(printed.exists)
    assert int(printed.read_text(), 8) == 0o077


# Directory.


async def test_the_directory_is_the_hosts_unless_given(
    runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside = tmp_path / "a b\nc"
    inside.mkdir()
    monkeypatch.chdir(tmp_path)
    for given, expected in ((None, tmp_path), ("a b\nc", inside), (inside, inside), (".", tmp_path)):
        run = await runs.python("import os; os.write(1, os.getcwdb())", cwd=given)
        await runs.wait(run)
        assert await runs.output(run) == os.fsencode(expected)


@pytest.mark.parametrize(
    ("name", "reason"), [("missing", "ENOENT"), ("file", "ENOTDIR"), ("file/x", "ENOTDIR")]
)
async def test_a_directory_that_is_none(runs: Runs, tmp_path: Path, name: str, reason: str) -> None:
    (tmp_path / "file").touch()
    run = await runs.sh("echo ran", cwd=tmp_path / name)
    assert run.state.value == "not_started"
    assert (await runs.sup.inspect(run.id)).reason == reason
    assert await runs.output(run) == b""


# Which file is run.


def program(path: Path, text: str = "#!/bin/sh\necho $0\n", mode: int = 0o755) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
    return path


async def spawned(runs: Runs, argv: list[str], **options: Any) -> tuple[str, str]:
    run = await runs.start(argv, **options)
    await runs.wait(run)
    [event] = await runs.events(run, kinds={Kind.PROGRAM_SPAWNED})
    return str(event.detail["requested"]), str(event.detail["canonical"])


async def test_names_are_looked_up_on_the_programs_own_path(runs: Runs, tmp_path: Path) -> None:
    first = program(tmp_path / "one" / "tool", mode=0o644)  # found, and may not be executed
    second = program(tmp_path / "two" / "tool")
    path = f"{tmp_path}/none:{first.parent}:{second.parent}:/usr/bin:/bin"
    assert await spawned(runs, ["tool"], env={"PATH": path}) == ("tool", str(second))
    assert await spawned(runs, ["./tool"], cwd=second.parent) == ("./tool", str(second))
    assert await spawned(runs, ["two/tool"], cwd=tmp_path) == ("two/tool", str(second))
    assert await spawned(runs, ["tool"], cwd=second.parent, env={"PATH": ":/bin"}) == ("tool", str(second))
    link = tmp_path / "link"
    link.symlink_to(second)
    assert await spawned(runs, [str(link)]) == (str(link), str(second))


@pytest.mark.parametrize(
    ("argv", "reason"),
    [
        (["no-such-program-3131"], "ENOENT"),
        (["./missing"], "ENOENT"),
        (["./plain"], "EACCES"),
        (["./folder"], "EACCES"),
        (["plain/x"], "ENOTDIR"),
        (["./empty"], "ENOEXEC"),
        (["./no-interpreter"], "ENOENT"),
        (["./loop"], "ELOOP"),
        (["x" * 300], "ENOENT"),
        (["/bin/echo", "y" * 200_000], "E2BIG"),  # one argument may have 128 KiB (execve(2))
    ],
)
async def test_a_program_that_cannot_be_run(runs: Runs, tmp_path: Path, argv: list[str], reason: str) -> None:
    program(tmp_path / "plain", mode=0o644)
    program(tmp_path / "empty", "")
    program(tmp_path / "no-interpreter", "#!/no/such/interpreter\n")
    (tmp_path / "folder").mkdir()
    (tmp_path / "loop").symlink_to("loop")
    run = await runs.start(argv, cwd=tmp_path)
    assert run.state.value == "not_started"
    seen = await runs.sup.inspect(run.id)
    assert (seen.reason, seen.outcome, seen.receipt) == (reason, None, None)
    [failed] = await runs.events(run, kinds={Kind.PROGRAM_EXEC_FAILED})
    assert failed.detail["error"] == reason


async def test_a_program_made_later_runs_once_under_the_same_request(runs: Runs, tmp_path: Path) -> None:
    path = tmp_path / "late"
    command = Command(argv=[str(path)])
    first = await runs.sup.start(command, request_id="late")
    assert first.state.value == "not_started"
    program(path, "#!/bin/sh\necho once\n")
    second = await runs.sup.start(command, request_id="late")
    assert (second.id, second.attempt) == (first.id, 2)
    await runs.wait(second)
    assert await runs.output(second) == b"once\n"
    third = await runs.sup.start(command, request_id="late")
    assert (third.id, third.attempt, third.admission) == (first.id, 2, "existing")


async def test_argv_zero_stays_as_it_was_asked_for(runs: Runs) -> None:
    run = await runs.start(["cat", "/proc/self/cmdline"])
    await runs.wait(run)
    assert (await runs.output(run)).split(b"\0")[0] == b"cat"
