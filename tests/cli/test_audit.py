"""``audit``: secrets from everywhere but the command line; what it says, and how it leaves."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.helpers import Cli, assert_one_error_line
from tests.cli.terminals import Terminal, finish
from tests.cli.test_bundles import finished
from tests.support import reap_state_dir

SECRET = "correct-horse-battery-staple"


@pytest.fixture(scope="module")
def cli(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cli]:
    """A directory that tests only read."""
    state_dir = tmp_path_factory.mktemp("shared")
    state_dir.chmod(0o700)
    yield Cli(state_dir)
    reap_state_dir(state_dir)


@pytest.fixture(scope="module")
def run_id(cli: Cli) -> str:
    return finished(cli, script=f'echo "<{SECRET}>"; exit 0')


def test_found_and_not_shown(cli: Cli, run_id: str, tmp_path: Path) -> None:
    secrets = tmp_path / "secrets"
    secrets.write_text(f"another-secret\n\n{SECRET}\n")
    told = cli("audit", run_id[:8], "--secrets-file", str(secrets))
    assert told.code == 1
    assert "line 3 in output: stdout (event " in told.stdout
    assert "line 3 in journal: run.argv[2]\n" in told.stdout
    assert "line 1" not in told.stdout
    assert SECRET not in told.stdout + told.stderr
    form = cli("audit", "--json", run_id, "--secret-env", "KEY", KEY=SECRET)
    assert form.code == 1
    assert not form.document["clean"]
    assert form.document["secrets"] == 1
    assert SECRET not in form.stdout


def test_clean_and_from_a_pipe(cli: Cli, run_id: str) -> None:
    told = cli.ok("audit", run_id, "--secrets-file", "-", stdin=b"nobody-prints-this\n")
    assert told.stdout.startswith(f"{run_id}  clean  ")


def test_a_bundle(cli: Cli, run_id: str, tmp_path: Path) -> None:
    file = tmp_path / "run.zip"
    cli.ok("export", run_id, "-o", str(file))
    told = cli("audit", "--json", str(file), "--secret-env", "KEY", KEY=SECRET)
    assert told.code == 1
    assert told.document["run_id"] == run_id
    assert {place["where"] for place in told.document["places"]} >= {"output", "event"}
    assert cli("audit", str(file), "--secret-env", "KEY", KEY="nobody-prints-this").code == 0


def test_asked_for_unseen(cli: Cli, run_id: str) -> None:
    terminal = Terminal(cli.state_dir)
    try:
        child = terminal("audit", run_id)
        child.expect("Secret: ")
        child.sendline(SECRET)
        shown, code = finish(child)
    finally:
        terminal.close()
    assert code == 1
    assert "the secret in output: stdout" in shown
    assert SECRET not in shown


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--secret-env", "KEY=value-on-argv"), "everybody can see"),
        (("--secret-env", "NOT_SET_ANYWHERE"), "is not set"),
        (("--secrets-file", "/dev/null"), "holds none"),
        (("--secrets-file", "/nowhere/at/all"), "cannot be read"),
        ((), "is missing"),
    ],
)  # fmt: skip
def test_bad_input(cli: Cli, words: tuple[str, ...], said: str) -> None:
    told = cli("audit", "whatever", *words)
    assert told.code == 2
    assert_one_error_line(told, "INVALID_REQUEST")
    assert said in told.stderr
    assert "value-on-argv" not in told.stderr


def test_a_service_hands_no_files_out(cli: Cli) -> None:
    told = cli("audit", "whatever", "--socket", "/nowhere", "--secret-env", "KEY", KEY=SECRET)
    assert_one_error_line(told, "INVALID_REQUEST")
