"""A fake program does its steps, and tells what it got."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
from pathlib import Path

import pytest

from durable_supervisor import Policy, Supervisor, run
from durable_supervisor.testing import FakePrograms
from tests.support import PATIENCE, eventually, running


@pytest.fixture
def fake(tmp_path: Path) -> FakePrograms:
    return FakePrograms(tmp_path / "a folder with 'spaces'")


def test_it_prints_answers_and_leaves_with_its_code(fake: FakePrograms) -> None:
    program = fake().stdout("hi\n", times=2).stderr(b"\xff").read_line("one\n")
    program = program.reply({"ping": "pong\n"}, otherwise="what?\n").exit(7)
    done = subprocess.run(
        [program.path, "a b", "c"],
        input=b"first\nping\nlast",
        capture_output=True,
        env={"SOME": "value", "OTHER": "kept"},
    )
    assert (done.returncode, done.stdout) == (7, b"hi\nhi\none\npong\nwhat?\n")
    assert done.stderr == b"\xff"
    once = program.once()
    assert once.argv == [program.path, "a b", "c"]
    assert once.stdin == b"first\nping\nlast"
    assert {"SOME", "OTHER"} <= set(once.env_names)
    assert once.env == {}
    assert (once.code, once.cwd) == (7, os.getcwd())


def test_values_of_the_environment_are_kept_where_asked_for(fake: FakePrograms) -> None:
    program = fake().keep_env("OTHER", "MISSING")
    subprocess.run([program.path], env={"SOME": "value", "OTHER": "kept"}, check=True)
    assert program.once().env == {"OTHER": "kept"}


def test_it_waits_for_gates_and_signals_and_ignores_what_it_shall(fake: FakePrograms) -> None:
    program = fake().ignore("SIGTERM").mark("ready").wait("go").mark("went").wait_signal("USR1").exit(3)
    with subprocess.Popen([program.path]) as process:
        assert program.wait_for("ready").pid == process.pid
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGUSR1)  # earlier than it is waited for: it counts
        eventually(lambda: program.once().signals == ["USR1"])
        assert program.once().marks == ["ready"]
        program.open("go")
        assert process.wait(PATIENCE) == 3
    assert program.once().marks == ["ready", "went"]


def test_it_kills_itself(fake: FakePrograms) -> None:
    for name in ("TERM", "KILL"):
        program = fake().die(name)
        assert subprocess.run([program.path]).returncode == -signal.Signals["SIG" + name]
        assert (program.once().signal, program.once().code) == (name, None)


@pytest.mark.parametrize("signo", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_it_dies_of_signals_as_any_program(fake: FakePrograms, signo: signal.Signals) -> None:
    program = fake().mark("ready").hang()
    with subprocess.Popen([program.path], stderr=subprocess.PIPE) as process:
        program.wait_for("ready")
        process.send_signal(signo)
        assert process.communicate(timeout=PATIENCE)[1] == b""
    assert process.returncode == -signo


def test_it_dies_of_a_closed_pipe(fake: FakePrograms) -> None:
    program = fake().stdout("x" * 1000, times=1000)
    with subprocess.Popen([program.path], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.wait(PATIENCE) == -signal.SIGPIPE


def test_children_outlive_it_until_they_are_ended(fake: FakePrograms) -> None:
    program = fake().child().child("session", stubborn=True).child("daemon")
    subprocess.run([program.path], stdout=subprocess.DEVNULL, check=True)
    plain, session, daemon = program.once().children
    try:
        assert all(map(running, (plain, session, daemon)))
        os.kill(plain, signal.SIGTERM)
        os.kill(session, signal.SIGTERM)
        eventually(lambda: not running(plain))
        assert os.getsid(session) == session
        eventually(lambda: Path(f"/proc/{daemon}/comm").read_text() == "sleep\n")
        assert Path(f"/proc/{daemon}/environ").read_bytes() == b""
        assert running(session)
    finally:
        for pid in (session, daemon):  # nobody has reaped them: the pids are theirs
            os.kill(pid, signal.SIGKILL)


def test_how_often_it_ran_is_told(fake: FakePrograms) -> None:
    program = fake().stdout("x")
    assert not program.ran
    with pytest.raises(AssertionError, match="executed 0 times"):
        program.once()
    for _ in range(2):
        subprocess.run([program.path], stdout=subprocess.DEVNULL, check=True)
    with pytest.raises(AssertionError, match="executed 2 times"):
        program.once()


def test_a_mark_that_nobody_comes_to_is_an_assertion(fake: FakePrograms) -> None:
    with pytest.raises(AssertionError, match="no execution came to mark 'never'"):
        fake().wait_for("never", timeout=0.05)


def test_python_is_an_escape_and_its_mistakes_show_at_once(fake: FakePrograms) -> None:
    program = fake().python("import os; os.write(1, b'escaped')")
    assert subprocess.run([program.path], capture_output=True).stdout == b"escaped"
    with pytest.raises(SyntaxError):
        fake().python("1 +")


@pytest.mark.parametrize(
    "mistake",
    [
        lambda one: one.ignore("NONSENSE"),
        lambda one: one.wait("../gate"),
        lambda one: one.child("orphan"),
    ],
)
def test_a_wrong_step_is_refused(fake: FakePrograms, mistake: object) -> None:
    assert callable(mistake)
    with pytest.raises(ValueError):
        mistake(fake())


def test_steps_end_at_the_first_use_also_in_another_process(fake: FakePrograms) -> None:
    program = fake()
    assert pickle.loads(pickle.dumps(program)).path == program.path
    with pytest.raises(RuntimeError, match="written already"):
        program.stdout("late")


async def test_a_confined_one_keeps_its_ledger(fake: FakePrograms, state_dir: Path) -> None:
    program = fake().stdout("hi\n").read_all().exit(3)
    policy = Policy(network="none", filesystem=program.grants)
    async with Supervisor.open(state_dir) as sup:
        command = program.command(cwd=program.folder)
        result = await run(command, input=b"in", policy=policy, supervisor=sup)
    assert (result.exit_code, result.stdout) == (3, b"hi\n"), result
    assert program.once().stdin == b"in"
