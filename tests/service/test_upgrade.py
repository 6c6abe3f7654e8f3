"""A newer service takes over the live runs of an older one, whose code is gone by then."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path

import pytest

from durable_supervisor import AsyncClient, Observer, __version__
from tests.cli.helpers import SOURCE, Cli
from tests.service.conftest import Serve
from tests.service.daemons import Service, until
from tests.support import running

OLDER = "0.0.9"


@pytest.fixture
def older(tmp_path: Path) -> Path:
    """The product's tree as an older release would have left it."""
    tree = tmp_path / "older"
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(SOURCE, tree / "src", ignore=ignored)
    shutil.copytree(SOURCE.parent / "migrations", tree / "migrations")
    init = tree / "src" / "durable_supervisor" / "__init__.py"
    text = init.read_text()
    assert f'__version__ = "{__version__}"' in text
    init.write_text(text.replace(f'__version__ = "{__version__}"', f'__version__ = "{OLDER}"'))
    return tree


@pytest.mark.parametrize("signo", [signal.SIGTERM, signal.SIGKILL])
def test_the_newer_service_has_the_older_ones_runs(
    serve: Serve, older: Path, tmp_path: Path, signo: signal.Signals
) -> None:
    old = serve(source=older / "src")
    assert old.ask("GET", "/v1/info")[1]["version"] == OLDER
    go = tmp_path / "go"
    waits = f"while [ ! -e {go} ]; do sleep 0.05; done; echo went; exit 5"
    ends_alone = old.start("sh", "-c", waits)
    stopped = old.start("sh", "-c", "trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.05; done")
    hears = old.ask("POST", "/v1/start", {"command": {"argv": ["cat"], "stdin": "open"}})[1]["run_id"]
    programs = {run: old.inspect(run)["program"]["pid"] for run in (ends_alone, stopped, hears)}
    doctor_says_so(old)
    old.end(signo)
    shutil.rmtree(older)
    go.touch()
    until(lambda: not running(programs[ends_alone]), "it ends while nobody watches")

    new = serve()
    assert new.ask("GET", "/v1/info")[1]["version"] == __version__
    check_end(new, ends_alone, {"kind": "exited", "code": 5})
    assert new.inspect(stopped)["program"]["pid"] == programs[stopped]
    assert new.ask("POST", f"/v1/runs/{stopped}/stop", {"grace": 20})[1]["confirmed"]
    check_end(new, stopped, {"kind": "cancelled", "code": 0})
    status, form = new.ask("POST", f"/v1/runs/{hears}/write-stdin?eof=true", content=b"over the years")
    assert (status, form["result"]) == (200, "closed")
    check_end(new, hears, {"kind": "exited", "code": 0})
    assert "over the years" in str(new.ask("GET", f"/v1/runs/{hears}/events?limit=1000")[1])


async def test_a_worker_from_before_there_were_leases_takes_input_all_the_same(
    serve: Serve, older: Path, state_dir: Path
) -> None:
    lease = older / "src" / "durable_supervisor" / "worker" / "lease.py"
    text = lease.read_text()
    knows = 'LEASE_OPS = frozenset({"lease", "unlease"})'
    assert knows in text
    lease.write_text(text.replace(knows, "LEASE_OPS: frozenset[str] = frozenset()"))
    old = serve(source=older / "src")
    hears = old.ask("POST", "/v1/start", {"command": {"argv": ["cat"], "stdin": "open"}})[1]["run_id"]
    old.end(signal.SIGTERM)

    new = serve()
    async with Observer.open(state_dir) as observer, observer.attach(hears) as directly:
        assert await directly.lease()
        assert (await directly.write_stdin(b"one\n")).result == "written"
    async with AsyncClient.connect(state_dir) as client, client.attach(hears) as attached:
        assert await attached.lease()
        assert (await attached.write_stdin(b"two\n", eof=True)).result == "closed"
    check_end(new, hears, {"kind": "exited", "code": 0})
    assert "".join(output(new, hears)) == "one\ntwo\n"


def output(service: Service, run: str) -> list[str]:
    _, page = service.ask("GET", f"/v1/runs/{run}/events?limit=1000&kind=output")
    return [str(event["text"]) for event in page["events"]]


def doctor_says_so(old: Service) -> None:
    checks = Cli(old.state_dir).ok("doctor", "--json").document["checks"]
    [check] = [one for one in checks if one["name"] == "socket"]
    assert (check["status"], OLDER in check["detail"], __version__ in check["detail"]) == ("note", True, True)
    assert "restart" in check["hint"]


def check_end(service: Service, run: str, outcome: dict[str, object]) -> None:
    status, form = service.ask("GET", f"/v1/runs/{run}/wait?timeout=60")
    assert (status, form["state"]) == (200, "finished"), form
    assert {name: form["outcome"][name] for name in outcome} == outcome
    assert form["receipt"]["survivors"] == []
