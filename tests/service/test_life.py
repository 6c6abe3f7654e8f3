"""The service comes and goes, by every kind of end; runs do not notice."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from durable_supervisor.wire.documents import validate
from tests.cli.helpers import COMMAND, environment
from tests.service.conftest import Serve
from tests.service.daemons import ROOT_LEAVE, Service, ask, tree_state, until
from tests.support import PATIENCE, eventually, running

ECHO = ("sh", "-c", "echo up; read line; echo got $line; exit 3")


def live(service: Service, count: int) -> list[str]:
    """Running programs that wait for a line on stdin."""
    command = {"argv": list(ECHO), "stdin": "open"}
    runs = [service.ask("POST", "/v1/start", {"command": command})[1]["run_id"] for _ in range(count)]
    for run in runs:
        assert service.inspect(run)["state"] == "running"
    return runs


def pids(service: Service, runs: list[str]) -> dict[str, int]:
    return {run: service.inspect(run)["program"]["pid"] for run in runs}


def check_whole(service: Service, runs: list[str], programs: dict[str, int]) -> None:
    """A new service has the runs: the same programs, which hear it, can be stopped, and end as they do."""
    assert pids(service, runs) == programs
    assert all(running(pid) for pid in programs.values())
    assert service.ask("POST", f"/v1/runs/{runs[0]}/write-stdin", content=b"you\n")[1]["result"] == "written"
    status, form = service.ask("GET", f"/v1/runs/{runs[0]}/wait?timeout=60")
    assert (status, form["state"], form["outcome"]["code"]) == (200, "finished", 3)
    for run in runs[1:]:
        status, form = service.ask("POST", f"/v1/runs/{run}/stop", {"grace": 5})
        assert (status, form["confirmed"]) == (200, True)
    _, page = service.ask("GET", f"/v1/runs/{runs[0]}/events?limit=1000")
    assert [event["seq"] for event in page["events"]] == list(range(1, len(page["events"]) + 1))


def test_a_drain_harms_no_run_and_the_next_service_has_them(serve: Serve) -> None:
    first = serve()
    runs = live(first, 5)
    programs = pids(first, runs)
    assert psutil.Process(first.process.pid).net_connections("inet") == [], "never TCP"
    assert first.end(signal.SIGTERM) == 0
    assert not os.path.exists(first.socket)
    assert first.entries("stopping")[0]["signal"] == "SIGTERM"
    assert first.entries("stopped")
    check_whole(serve(), runs, programs)


def test_a_kill_harms_no_run_and_the_next_service_has_them(serve: Serve) -> None:
    first = serve()
    runs = live(first, 3)
    programs = pids(first, runs)
    first.end(signal.SIGKILL)
    assert os.path.exists(first.socket), "a stale socket is left, and is no obstacle"
    check_whole(serve(), runs, programs)


def test_a_second_service_is_refused_before_it_writes_anything(serve: Serve, state_dir: Path) -> None:
    first = serve()
    live(first, 1)
    until(lambda: "running" in str(first.ask("GET", "/v1/feed")), "the first has noted all it knows")
    until(lambda: list(state_dir.rglob("runs/*/*.sock")), "the worker has made its socket")
    before = tree_state(state_dir)
    second = Service(state_dir)
    try:
        assert second.process.wait(PATIENCE) == 5
    finally:
        second.kill()
    error = json.loads(second.log().splitlines()[-1])["error"]
    assert error["code"] == "STATE_DIR_IN_USE"
    assert error["details"] == {"pid": first.process.pid, "socket": first.socket}
    assert f"kill {first.process.pid}" in error["hint"]
    assert tree_state(state_dir) == before
    assert first.ask("GET", "/v1/info")[0] == 200


@pytest.mark.parametrize("pointer", ["fifo", '{"socket": "/\\ud800/x"}'])
def test_a_pointer_that_cannot_be_believed_holds_up_no_second_service(
    serve: Serve, state_dir: Path, pointer: str
) -> None:
    serve()
    place = state_dir / "supervisor.socket"
    os.mkfifo(place) if pointer == "fifo" else place.write_text(pointer)
    second = Service(state_dir)
    try:
        assert second.process.wait(PATIENCE) == 5
    finally:
        second.kill()
    assert json.loads(second.log().splitlines()[-1])["error"]["code"] == "STATE_DIR_IN_USE"


def test_a_service_waits_for_one_that_is_about_to_leave(serve: Serve, state_dir: Path) -> None:
    first = serve()
    first.process.send_signal(signal.SIGSTOP)  # so it does not say that it means to stay
    second, third = Service(state_dir), Service(state_dir)
    try:
        for service in (second, third):
            until(lambda one=service: one.entries("waiting_for_owner"), "it waits")  # type: ignore[misc]
        assert second.end() == 0, "a signal ends the wait"
        assert second.process.stdout is not None
        assert second.process.stdout.read() == b"", "it was never ready"
        first.process.send_signal(signal.SIGTERM)
        first.process.send_signal(signal.SIGCONT)
        assert first.process.wait(PATIENCE) == 0
        assert third.ready().ask("GET", "/v1/info")[0] == 200
    finally:
        second.kill()
        third.kill()


@pytest.mark.parametrize("what", ["has a full backlog", "is closed to us", "file"])
def test_what_is_not_a_stale_socket_is_never_removed(state_dir: Path, what: str) -> None:
    path = state_dir / "supervisor.sock"
    ends = [socket.socket(socket.AF_UNIX) for _ in range(5)]
    if what == "file":
        path.write_text("mine")
    else:
        ends[0].bind(str(path))
        ends[0].listen(0)
    if what == "is closed to us":  # EACCES, but for root
        path.chmod(0)
    if what == "has a full backlog":  # connect(2) says EAGAIN
        for one in ends[1:]:
            one.setblocking(False)
            one.connect_ex(str(path))
    before = path.lstat().st_ino
    service = Service(state_dir)
    try:
        assert service.process.wait(PATIENCE) == 5, service.log()
    finally:
        service.kill()
        for one in ends:
            one.close()
    assert json.loads(service.log().splitlines()[-1])["error"]["code"] == "SOCKET_IN_USE"
    assert path.lstat().st_ino == before


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_root_is_refused_unless_it_is_wanted(state_dir: Path) -> None:
    service = Service(state_dir, leave=())
    try:
        assert service.process.wait(PATIENCE) == 2
    finally:
        service.kill()
    error = json.loads(service.log().splitlines()[-1])["error"]
    assert error["code"] == "INVALID_REQUEST"
    assert "--allow-root" in error["hint"]
    assert list(state_dir.iterdir()) == []


def test_stop_runs_on_exit_leaves_nothing(serve: Serve) -> None:
    service = serve("--stop-runs-on-exit")
    runs = live(service, 3)
    programs = pids(service, runs)
    assert service.end() == 0
    assert [running(pid) for pid in programs.values()] == [False] * 3
    assert service.entries("stopped")[0]["stopped_runs"] == 3
    later = serve()
    assert {later.inspect(run)["outcome"]["kind"] for run in runs} == {"cancelled"}


def test_a_second_signal_leaves_at_once(serve: Serve) -> None:
    service = serve("--stop-runs-on-exit")
    script = "trap '' TERM; echo deaf; while :; do sleep 0.1; done"
    run = service.start("sh", "-c", script, limits={"grace": 600})
    until(lambda: "deaf" in output(service, run), "it does not heed TERM")
    program = service.inspect(run)["program"]["pid"]
    service.process.send_signal(signal.SIGTERM)
    until(lambda: service.entries("stopping"), "it has heard the first")
    until(lambda: _state(service.state_dir, run) == "stopping", "it waits for the run")
    assert service.end() == 128 + signal.SIGTERM
    assert running(program), "its grace is its worker's to keep"
    later = serve()
    assert later.inspect(run)["state"] == "stopping"
    assert later.ask("POST", f"/v1/runs/{run}/stop", {"grace": 0})[1]["confirmed"]


def _state(state_dir: Path, run: str) -> str:
    from tests.cli.helpers import Cli

    return str(Cli(state_dir).inspect(run)["state"])


def test_a_closed_terminal_does_not_end_it(serve: Serve) -> None:
    service = serve()
    service.process.send_signal(signal.SIGHUP)
    run = service.start("sh", "-c", "grep SigIgn /proc/self/status")
    assert service.ask("GET", f"/v1/runs/{run}/wait?timeout=60")[0] == 200
    ignored = int(output(service, run).split()[-1], 16)
    assert not ignored & 1 << (signal.SIGHUP - 1), "programs get the default"


def output(service: Service, run: str) -> str:
    _, page = service.ask("GET", f"/v1/runs/{run}/events?limit=1000&kind=output")
    return "".join(event["text"] for event in page["events"])


@pytest.mark.parametrize("closed", ["2>&-", "<&- >&- 2>&-"])
def test_it_serves_without_the_streams_that_others_have(state_dir: Path, closed: str) -> None:
    words = [*COMMAND, "serve", *ROOT_LEAVE]
    process = subprocess.Popen(
        ["sh", "-c", f'exec "$@" {closed}', "sh", *words], env=environment(state_dir), cwd="/"
    )
    try:
        path = str(state_dir / "supervisor.sock")
        until(lambda: process.poll() is not None or os.path.exists(path), "it listens")
        assert process.poll() is None
        assert ask(path, "GET", "/v1/info")[0] == 200
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0
    finally:
        process.kill()
        process.wait()


def test_it_can_be_ended_whatever_signals_its_starter_had_blocked(state_dir: Path) -> None:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        service = Service(state_dir)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    with service:
        assert service.end(signal.SIGTERM) == 0


def test_starts_under_way_are_finished_and_new_ones_refused(serve: Serve) -> None:
    # A worker that stands still before its first word keeps its start under way.
    service = serve(DURABLE_SUPERVISOR_FAILPOINTS="worker.dispatched=pause@1")
    code = "import json, sys; from tests.service.daemons import ask; print(json.dumps(ask(*sys.argv[1:3],"
    code += " sys.argv[3], json.loads(sys.argv[4]))))"
    body = json.dumps({"command": {"argv": ["sh", "-c", "exit 4"]}, "request_id": "under-way"})
    root = Path(__file__).resolve().parents[2]
    caller = subprocess.Popen(
        [sys.executable, "-c", code, service.socket, "POST", "/v1/start", body],
        stdout=subprocess.PIPE,
        cwd=root,
        env={**os.environ, "PYTHONPATH": f"{root}/src:{root}"},
    )
    worker = until(lambda: _stopped_child_named(b"dsup-worker", service.state_dir), "the worker stands still")
    service.process.send_signal(signal.SIGTERM)
    until(lambda: service.ask("GET", "/v1/info")[1]["phase"] == "draining", "it drains")
    refused = service.ask("POST", "/v1/start", {"command": {"argv": ["true"]}})
    assert (refused[0], refused[1]["error"]["code"]) == (503, "SHUTTING_DOWN")
    os.kill(worker, signal.SIGCONT)
    answer, _ = caller.communicate(timeout=PATIENCE)
    status, form = json.loads(answer)
    assert (status, form["request_id"]) == (201, "under-way")
    assert service.process.wait(PATIENCE) == 0


def _stopped_child_named(name: bytes, state_dir: Path) -> int | None:
    """A stopped process of this name that works in the state directory."""
    for entry in Path("/proc").iterdir():
        try:
            stat = (entry / "stat").read_bytes()
            if b"(" + name + b")" in stat and stat.rpartition(b")")[2].split()[0] == b"T":
                links = [os.readlink(link) for link in (entry / "fd").iterdir()]
                if any(link.startswith(str(state_dir)) for link in links):
                    return int(entry.name)
        except OSError:
            continue
    return None


def test_programs_keep_the_limits_that_the_service_came_with(state_dir: Path) -> None:
    service = Service(state_dir, prefix=("sh", "-c", 'ulimit -S -n 300; exec "$@"', "sh"))
    try:
        service.ready()
        ready = until(lambda: service.entries("ready"), "its log says that it is ready")
        assert ready[0]["open_files"] > 300
        for _ in range(3):  # by exec, by the zygote, by a worker that waited
            run = service.start("sh", "-c", "ulimit -S -n")
            service.ask("GET", f"/v1/runs/{run}/wait?timeout=60")
            assert output(service, run).strip() == "300"
    finally:
        service.kill()


def test_a_long_path_of_its_own_is_found_by_everybody(serve: Serve, tmp_path: Path) -> None:
    folder = tmp_path / ("a" * 120)
    folder.mkdir(mode=0o700)
    service = serve("--socket", str(folder / "own.sock"))
    assert service.socket == str(folder / "own.sock")
    second = Service(service.state_dir)
    try:
        assert second.process.wait(PATIENCE) == 5
        assert "serves it already" in second.log()
    finally:
        second.kill()
    assert service.end() == 0
    assert list(folder.iterdir()) == []


def test_its_document_is_its_only_word_on_stdout(serve: Serve) -> None:
    service = serve()
    facts: dict[str, Any] = service.facts
    validate("serve", facts)
    assert facts["pid"] == service.process.pid
    assert facts["state_dir"] == str(service.state_dir)
    assert service.end(signal.SIGINT) == 0
    assert service.process.stdout is not None
    assert service.process.stdout.read() == b""
    eventually(lambda: not os.path.exists(service.socket))


def test_it_says_where_it_stands_to_the_manager(state_dir: Path, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.settimeout(PATIENCE)
        manager.bind(str(tmp_path / "notify"))
        service = Service(state_dir, NOTIFY_SOCKET=str(tmp_path / "notify"), WATCHDOG_USEC="400000")
        try:
            assert manager.recv(999).startswith(b"READY=1\nSTATUS=")
            assert [manager.recv(999) for _ in range(3)] == [b"WATCHDOG=1"] * 3
            service.ready()
            run = service.start("sh", "-c", "env; sleep 100")
            assert "NOTIFY" not in str(service.ask("GET", f"/v1/runs/{run}/events")[1])
            empty(manager)  # a full queue takes no word of the end
            service.process.send_signal(signal.SIGTERM)
            told = until(lambda: (said := manager.recv(999)) != b"WATCHDOG=1" and said, "it tells of its end")
            assert told.startswith(b"STOPPING=1\nSTATUS=")
            assert service.process.wait(PATIENCE) == 0
        finally:
            service.kill()


def empty(manager: socket.socket) -> None:
    manager.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while manager.recv(999):
            pass
    manager.settimeout(PATIENCE)
