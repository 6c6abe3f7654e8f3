"""``import`` for people and for scripts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from durable_supervisor.wire.documents import validate
from tests.cli.helpers import Cli
from tests.cli.terminals import Terminal, finish
from tests.cli.test_bundles import finished
from tests.support import reap_state_dir


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cli]:
    state_dir = tmp_path_factory.mktemp("theirs")
    state_dir.chmod(0o700)
    yield Cli(state_dir)
    reap_state_dir(state_dir)


def bundle_of(cli: Cli, run_id: str, folder: Path) -> str:
    file = str(folder / f"{run_id}.zip")
    cli.ok("export", run_id, "-o", file)
    return file


def test_a_run_of_somebody_else(cli: Cli, theirs: Cli, tmp_path: Path) -> None:
    run_id = finished(theirs, "--request-id", "nightly")
    file = bundle_of(theirs, run_id, tmp_path)
    assert f"{run_id}  imported (finished when it was exported)" in cli.ok("import", file).stdout
    again = cli.ok("import", file, "--json").document
    validate("import", again)
    assert (again["admission"], again["run_id"]) == ("already", run_id)
    assert "is a run of this directory" in theirs.ok("import", file).stdout

    assert "exited 3, imported" in cli.ok("list").stdout
    assert "it can only be read" in cli.ok("inspect", run_id[:6]).stdout
    assert cli.ok("events", run_id, "--json").raw == theirs.ok("events", run_id, "--json").raw
    assert cli("logs", run_id).raw == theirs("logs", run_id).raw
    assert cli("wait", run_id).code == 3
    copy = tmp_path / "copy.zip"
    cli.ok("export", run_id, "-o", str(copy))
    assert copy.read_bytes() == Path(file).read_bytes()
    cli.ok("report", run_id, "-o", str(tmp_path / "report.html"))
    stop = cli("stop", run_id, "--json")
    assert (stop.code, stop.error["code"]) == (5, "NOT_RUNNING")
    assert "ok" in cli.ok("verify").stdout


def test_one_that_is_refused_keeps_no_other_out(cli: Cli, theirs: Cli, tmp_path: Path) -> None:
    good = bundle_of(theirs, finished(theirs), tmp_path)
    bad = tmp_path / "bad.zip"
    bad.write_text("hello")
    both = cli("import", str(bad), good)
    assert both.code == 2
    assert "imported" in both.stdout
    assert str(bad) in both.stderr
    told = cli("import", str(bad), good, "--json")
    assert (told.code, told.error["details"]["path"]) == (2, str(bad))
    assert [document["admission"] for document in told.documents] == ["already"]
    assert cli("import").code == 2


def test_a_strangers_output_does_not_get_at_the_terminal(
    cli: Cli, terminal: Terminal, theirs: Cli, tmp_path: Path
) -> None:
    run_id = finished(theirs, "--pty", script="printf '\\033]0;mine\\007done\\n'")
    cli.ok("import", bundle_of(theirs, run_id, tmp_path))
    for verb in ("replay", "attach"):
        seen, code = finish(terminal(verb, run_id))
        assert code == 0
        assert "done" in seen
        assert "\x1b]0;mine" not in seen


def test_completion_knows_it(cli: Cli, theirs: Cli, tmp_path: Path) -> None:
    run_id = finished(theirs)
    cli.ok("import", bundle_of(theirs, run_id, tmp_path))
    told = cli(
        _DURABLE_SUPERVISOR_COMPLETE="complete_bash",
        COMP_WORDS=f"dsup inspect {run_id[:5]}",
        COMP_CWORD="2",
    )
    assert run_id in told.stdout
