"""``export``, ``report`` and reading verbs on a bundle, with real runs."""

from __future__ import annotations

import json
import stat
import subprocess
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from durable_supervisor import Command, Supervisor
from durable_supervisor import Terminal as Pty
from durable_supervisor.bundle.cast import cast_lines
from durable_supervisor.bundle.reader import BundleReader
from durable_supervisor.model.answers import feed_entry
from durable_supervisor.supervisor.observer import Observer
from durable_supervisor.wire.documents import validate
from tests.cli.helpers import Cli, Result
from tests.cli.terminals import Terminal, finish
from tests.support import PATIENCE, eventually, eventually_async, reap_state_dir

_LEFT, _RIGHT = "\x1b[D", "\x1b[C"
SCRIPT = "echo out; echo err >&2; printf '\\033[31mred\\377\\n'; exit 3"


def finished(cli: Cli, *options: str, script: str = SCRIPT) -> str:
    """A run that is over, and noted in the journal as such."""
    run_id = str(cli.ok("start", "--json", *options, "--", "sh", "-c", script).document["run_id"])
    cli("wait", run_id)
    cli.ok("reconcile", "--json")
    return run_id


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cli]:
    """A directory that tests only read."""
    state_dir = tmp_path_factory.mktemp("shared")
    state_dir.chmod(0o700)
    yield Cli(state_dir)
    reap_state_dir(state_dir)


@pytest.fixture(scope="module")
def run_id(shared: Cli) -> str:
    return finished(shared)


def test_the_same_run_gives_the_same_bytes(shared: Cli, run_id: str, tmp_path: Path) -> None:
    file = tmp_path / "run.zip"
    told = shared.ok("export", run_id[:6], "-o", str(file), "--json").document
    assert (told["run_id"], told["state"], told["bytes"]) == (run_id, "finished", file.stat().st_size)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert shared.ok("export", run_id, "-o", "-", TZ="Asia/Tokyo").raw == file.read_bytes()
    with zipfile.ZipFile(file) as bundle:
        assert bundle.testzip() is None
        names = [info.filename for info in bundle.infolist()]
        log = next(name for name in names if name.endswith(".a1.log"))
        assert names == ["run.json", "receipt.json", "journal.json", log, "report.html", "manifest.json"]
        assert bundle.read(log) == (shared.state_dir / log).read_bytes()
        documents = {name: json.loads(bundle.read(name)) for name in names if name.endswith(".json")}
    journal = documents["journal.json"]
    assert journal["run"]["run_id"] == run_id
    assert [entry["state"] for entry in journal["feed"]][-1] == "finished"
    validate("inspect", documents["run.json"])
    validate("receipt", documents["receipt.json"])
    validate("journal-rows", journal)
    validate("bundle", documents["manifest.json"])


async def test_reading_a_bundle_is_reading_the_run(shared: Cli, run_id: str, tmp_path: Path) -> None:
    file = str(tmp_path / "run.zip")
    shared.ok("export", run_id, "-o", file)
    async with Observer.open(shared.state_dir) as run, BundleReader(file) as bundle:
        assert (await bundle.inspect(file)).to_dict() == (await run.inspect(run_id)).to_dict()
        assert (await bundle.list()).to_dict() == (await run.list()).to_dict()
        assert [*map(feed_entry, await bundle.feed())] == [*map(feed_entry, await run.feed())]
        for after in (0, 3):
            page, same = await bundle.events(run_id, after=after), await run.events(run_id, after=after)
            assert (page.events, page.head, page.end) == (same.events, same.head, same.end)
        assert [event async for event in bundle.follow(run_id, output=False)] == [
            event async for event in run.follow(run_id, output=False)
        ]
    assert [path.name for path in tmp_path.iterdir()] == ["run.zip"]


def test_reading_verbs_take_a_bundle(shared: Cli, run_id: str, tmp_path: Path) -> None:
    file = str(tmp_path / "run.zip")
    shared.ok("export", run_id, "-o", file)
    elsewhere = Cli(tmp_path / "no state directory")
    assert elsewhere.ok("inspect", file, "--json").document["run_id"] == run_id
    assert [run["run_id"] for run in elsewhere.ok("list", file, "--json").document["runs"]] == [run_id]
    assert elsewhere.ok("events", file, "--limit", "1").stdout.split()[2] == "run.dispatched"
    assert elsewhere.ok("logs", file, "--raw").raw == shared.ok("logs", run_id, "--raw").raw
    assert elsewhere("replay", file, "--quiet", "--speed", "99").raw == b"out\n\x1b[31mred\xff\n"
    assert elsewhere.ok("report", file, "-o", "-").raw == shared.ok("report", run_id, "-o", "-").raw


def test_a_run_that_goes_on_is_exported_as_far_as_it_is(cli: Cli, tmp_path: Path) -> None:
    run_id = str(cli.ok("start", "--json", "--", "sh", "-c", "echo begun; exec sleep 600").document["run_id"])
    eventually(lambda: b"begun" in cli.ok("logs", run_id).raw)
    file = tmp_path / "run.zip"
    result = cli("export", run_id, "-o", str(file))
    assert result.code == 0
    assert "the run was running" in result.stderr
    manifest = json.loads(zipfile.ZipFile(file).read("manifest.json"))
    assert manifest["open"] is True
    assert cli.ok("inspect", str(file), "--json").document["state"] == "running"
    assert cli.ok("logs", str(file), "--follow").raw == b"begun\n"
    cli.ok("stop", run_id, "--grace", "0")


def test_a_terminals_run_has_its_recording(cli: Cli, tmp_path: Path) -> None:
    run_id = finished(cli, "--pty", "--size", "100x30", script="printf 'caf\\303\\251\\n'")
    file = tmp_path / "run.zip"
    cli.ok("export", run_id, "-o", str(file), "--no-report")
    with zipfile.ZipFile(file) as bundle:
        assert "report.html" not in bundle.namelist()
        lines = [json.loads(line) for line in bundle.read("session.cast").splitlines()]
    assert (lines[0]["version"], lines[0]["width"], lines[0]["height"]) == (2, 100, 30)
    assert "".join(text for _, code, text in lines[1:] if code == "o") == "café\r\n"


async def test_a_recording_has_the_changes_of_its_size(state_dir: Path) -> None:
    async with Supervisor.open(state_dir) as sup:
        argv = ["sh", "-c", "trap 'stty size; exit' WINCH; echo up; while :; do sleep 0.05; done"]
        run = await sup.start(Command(argv=argv, pty=Pty(columns=80, rows=24)))
        await eventually_async(lambda: has_printed(sup, run.id, b"up"))
        assert (await sup.resize(run.id, 132, 50)).result == "resized"
        view = await sup.wait(run.id, timeout=PATIENCE)
        lines = [json.loads(line) for line in cast_lines(view, (await sup.events(run.id, limit=1000)).events)]
    codes = [line[1] for line in lines[1:]]
    assert [line[2] for line in lines[1:] if line[1] == "r"] == ["132x50"]
    assert codes.index("r") < max(at for at, code in enumerate(codes) if code == "o")
    assert "50 132" in "".join(line[2] for line in lines[1:])
    assert [line[0] for line in lines[1:]] == sorted(line[0] for line in lines[1:])


async def has_printed(sup: Supervisor, run_id: str, word: bytes) -> bool:
    return any(word in event.data for event in (await sup.events(run_id)).events)


def refused(result: Result, words: str) -> None:
    assert result.code == 2
    assert "INVALID_REQUEST" in result.stderr
    assert words in result.stderr


def test_a_file_that_is_there_stays(shared: Cli, run_id: str, tmp_path: Path) -> None:
    cli = shared
    file = tmp_path / "run.zip"
    file.write_text("mine")
    refused(cli("export", run_id, "-o", str(file)), "is there already")
    assert file.read_text() == "mine"
    cli.ok("export", run_id, "-o", str(file), "--force")
    assert zipfile.is_zipfile(file)
    refused(cli("report", run_id, "-o", str(tmp_path / "no" / "report.html")), "cannot be written")
    refused(cli("export", str(file), "-o", str(tmp_path / "x")), "is a bundle already")
    refused(cli("export", run_id, "-o", "-", "--json"), "stdout has the file")
    over_a_socket = cli("export", run_id, "-o", str(tmp_path / "x"), "--socket", "/nowhere")
    refused(over_a_socket, "does not hand its files")
    assert cli("export", "zzzz", "-o", str(tmp_path / "x")).code != 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run.zip"]


def test_a_log_that_is_gone_does_not_stop_an_export(cli: Cli, tmp_path: Path) -> None:
    run_id = finished(cli)
    next(cli.state_dir.glob(f"runs/*/{run_id}.a1.log")).unlink()
    file = tmp_path / "run.zip"
    cli.ok("export", run_id, "-o", str(file))
    seen = cli.ok("inspect", str(file), "--json").document
    assert seen["outcome"] == {"kind": "exited", "code": 3, "signal": None}
    assert seen["log_health"]["status"] == "missing"
    assert cli.ok("events", str(file), "--json").raw == b""


def test_a_word_that_may_be_a_run_is_one(
    shared: Cli, run_id: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file of the same name in the working directory shadows no run."""
    monkeypatch.chdir(tmp_path)
    Path(run_id).write_text("not a bundle")
    assert shared.ok("inspect", run_id, "--json").document["run_id"] == run_id
    assert "UNKNOWN_RUN" in shared("inspect", "nothing.zip").stderr
    refused(shared("inspect", f"./{run_id}"), "no zip file")
    refused(shared("inspect", "./nothing.zip"), "there is no file './nothing.zip'")
    Path("run.zip").write_bytes(shared.ok("export", run_id, "-o", "-").raw)
    refused(shared("wait", "run.zip"), "nothing else")
    assert "a bundle can be read, nothing else" in shared("stop", "run.zip").stderr


def in_a_bundle(cli: Cli, run_id: str, folder: Path) -> str:
    file = str(folder / "run.zip")
    cli.ok("export", run_id, "-o", file, "--no-report")
    return file


@pytest.mark.parametrize("bundled", [False, True], ids=["of a run", "of a bundle"])
def test_keys_of_a_replay(cli: Cli, terminal: Terminal, tmp_path: Path, bundled: bool) -> None:
    run_id = finished(cli, script="echo one; sleep 0.3; echo two")
    child = terminal("replay", in_a_bundle(cli, run_id, tmp_path) if bundled else run_id, "--speed", "0.01")
    for key, answer in ((" ", "paused at"), ("+", "speed 0.0"), (_RIGHT, r"at \+10"), (_LEFT, r"at \+0")):
        child.send(key)
        child.expect(answer)
    child.send(" ")
    child.expect("one")  # once more
    child.send("q")
    _, code = finish(child)
    assert code == 0


def test_a_replay_from_a_moment_on(cli: Cli, tmp_path: Path) -> None:
    run_id = cli.start("--stdin", "open", "--", "sh", "-c", "echo one; read line; echo two")
    eventually(lambda: cli.ok("logs", run_id).raw == b"one\n")
    cli.ok("write-stdin", run_id, "--eof", stdin=b"\n")
    assert cli("wait", run_id).code == 0
    cli.ok("reconcile")
    first, *_, one, two = [
        event["elapsed"]
        for event in cli.ok("events", "--json", run_id).documents
        if event["kind"] in ("run.dispatched", "output")
    ]
    between = f"{round(1000 * ((one + two) / 2 - first))}ms"
    for source in (run_id, in_a_bundle(cli, run_id, tmp_path)):
        for position, shown in (("0", b"one\ntwo\n"), (between, b"two\n"), ("1h", b"")):
            assert cli.ok("replay", source, "--from", position, "--speed", "99", "--quiet").raw == shown


def test_a_bundle_that_a_full_disk_breaks_off_is_one_error_line(shared: Cli, run_id: str) -> None:
    with (
        open("/dev/full", "wb") as full,
        shared.popen("export", run_id, "-o", "-", stdout=full, stderr=subprocess.PIPE) as done,
    ):
        said = done.communicate()[1].decode()
    assert done.returncode == 1
    assert said.startswith("error: INTERNAL: cannot write to stdout: No space left on device")
    assert said.count("\n") == 1, said
