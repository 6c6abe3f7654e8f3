"""A worker is there early for what looks like a start of our own, and for nothing else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from durable_supervisor.cli.opening.prestart import speculative_worker
from tests.cli.helpers import Cli
from tests.support import PATIENCE, running


def worker_of(*words: str) -> int | None:
    """The pid of the one that was spawned, which has left again."""
    prestarted = speculative_worker(list(words))
    if prestarted is None:
        return None
    assert running(prestarted.pid)
    prestarted.close()
    assert os.waitpid(prestarted.pid, 0) == (prestarted.pid, 0)
    return prestarted.pid


@pytest.mark.parametrize(
    "words",
    [
        ("--", "true"),
        ("true",),
        ("--timeout", "5", "--json", "--", "true", "--help"),
        ("--state-dir=/nonexistent", "--", "sh", "--socket", "x"),
        ("--state-dir", "/nonexistent"),
    ],
)
def test_for_a_start(words: tuple[str, ...], state_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DURABLE_SUPERVISOR_STATE_DIR", str(state_dir))
    assert worker_of("start", *words) is not None


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("run", "--", "true"),
        ("list",),
        ("--json", "start", "--", "true"),
        ("start", "--help"),
        ("start", "--dry-run", "--", "true"),
        ("start", "--socket", "/x", "--", "true"),
        ("start", "--socket=/x", "--", "true"),
        ("start", "--state-dir", "", "--", "true"),
        ("start", "--state-dir=a\0b", "--", "true"),
    ],
)
def test_for_nothing_else(words: tuple[str, ...], state_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DURABLE_SUPERVISOR_STATE_DIR", str(state_dir))
    assert worker_of(*words) is None


def test_not_where_a_service_may_be(state_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state_dir.mkdir(exist_ok=True)
    (state_dir / "supervisor.socket").write_text("{}")
    assert worker_of("start", "--state-dir", str(state_dir), "--", "true") is None
    monkeypatch.setenv("DURABLE_SUPERVISOR_SOCKET", "/x")
    assert worker_of("start", "--", "true") is None
    assert worker_of("start", "--state-dir", "/nonexistent", "--", "true") is not None


def test_not_from_a_directory_that_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert worker_of("start", "--state-dir", "here", "--", "true") is None


def test_it_takes_no_stream_that_is_closed(cli: Cli) -> None:
    """Its socket would get the number of one, and what is printed would go to a worker."""
    with cli.popen("start", "--", "true", preexec_fn=lambda: os.closerange(0, 3)) as starting:
        assert starting.wait(PATIENCE) == 1, "there is nowhere to say so"
    (run,) = cli.ok("list", "--json").document["runs"]
    assert cli.ok("wait", "--json", run["run_id"]).document["state"] == "finished"
