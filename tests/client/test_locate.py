"""Which socket a client goes to, and whom it talks to there."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from durable_supervisor import AsyncClient, Client, Command, ErrorCode, Supervisor, SupervisorError
from durable_supervisor.client.locate import Candidate, Place, is_trusted, open_socket
from durable_supervisor.process.places import (
    POINTER_NAME,
    SOCKET_NAME,
    SOCKET_VARIABLE,
    STATE_DIR_VARIABLE,
    state_directory,
)
from durable_supervisor.server.server import Server
from tests.client.raw import FEED, RawService, Visit, answer
from tests.contract.hosts import check_error, refused
from tests.support import PATIENCE


def point(state_dir: Path, target: Any) -> Path:
    pointer = state_dir / POINTER_NAME
    pointer.write_text(json.dumps({"socket": str(target)} if isinstance(target, Path) else target))
    return pointer


async def talkative(visit: Visit) -> None:
    while True:
        await visit.request()
        await visit.say(answer(FEED))


def test_the_nearest_word_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SOCKET_VARIABLE, "/variable/x.sock")
    monkeypatch.setenv(STATE_DIR_VARIABLE, str(tmp_path / "variable"))
    here, there = tmp_path / "a", tmp_path / "b.sock"
    assert Place.of(here, there).candidates() == [Candidate(str(there))]
    assert Place.of(None, there).candidates() == [Candidate(str(there))]
    assert Place.of(here, None).candidates() == [Candidate(str(here / SOCKET_NAME))]
    assert Place.of(None, None).candidates() == [Candidate("/variable/x.sock")]
    monkeypatch.delenv(SOCKET_VARIABLE)
    assert Place.of(None, None).candidates() == [Candidate(str(tmp_path / "variable" / SOCKET_NAME))]
    monkeypatch.chdir(tmp_path)
    assert Place.of(None, "b.sock").candidates() == [Candidate(str(there))]


def test_a_pointer_comes_before_the_default(state_dir: Path, tmp_path: Path) -> None:
    point(state_dir, tmp_path / "elsewhere.sock")
    default = Candidate(str(state_dir / SOCKET_NAME))
    assert Place.of(state_dir, None).candidates() == [
        Candidate(str(tmp_path / "elsewhere.sock"), pointed=True),
        default,
    ]
    wrong = ("relative", 7, "/a\0b", "/\ud800")
    for content in (*({"socket": path} for path in wrong), ["/x"], {}, "x", None):
        point(state_dir, content)
        assert Place.of(state_dir, None).candidates() == [default]
    pointer = point(state_dir, tmp_path / "elsewhere.sock")
    pointer.write_bytes(b"\xff{not json")
    assert Place.of(state_dir, None).candidates() == [default]
    pointer.unlink()
    pointer.symlink_to(tmp_path / "anything")
    assert Place.of(state_dir, None).candidates() == [default]
    pointer.unlink()
    os.mkfifo(pointer)
    assert Place.of(state_dir, None).candidates() == [default]


@pytest.mark.parametrize("wrong", ["", "a\0b", 7])
def test_what_is_no_path(tmp_path: Path, wrong: Any) -> None:
    with pytest.raises(SupervisorError) as caught:
        Place.of(tmp_path, wrong)
    assert caught.value.code is ErrorCode.INVALID_REQUEST
    if wrong:
        with pytest.raises(SupervisorError) as caught:
            Place.of(wrong, None)
        assert caught.value.code is ErrorCode.STATE_DIR_REFUSED


async def test_an_outdated_pointer_is_no_obstacle(state_dir: Path, tmp_path: Path) -> None:
    """Its service died; another of the same directory listens at the default place."""
    point(state_dir, tmp_path / "gone.sock")
    async with RawService(state_dir, talkative).listening(), AsyncClient.connect(state_dir) as client:
        assert await client.feed() == []


async def test_a_pointer_to_the_service_of_another_directory(state_dir: Path, tmp_path: Path) -> None:
    """Its service died, and a service of somebody else's has taken the path: nothing is asked of it."""
    other = tmp_path / "other"
    other.mkdir()
    point(state_dir, other / "there.sock")
    async with RawService(other, talkative).listening(other / "there.sock") as wrong:
        async with refused(ErrorCode.SERVICE_UNAVAILABLE) as caught:
            await AsyncClient.connect(state_dir)
        assert "another state directory" in caught().message
        async with RawService(state_dir, talkative).listening(), AsyncClient.connect(state_dir) as client:
            assert await client.feed() == []
        assert wrong.greetings == 2


async def test_a_real_service_elsewhere_is_found_by_its_directory(state_dir: Path, tmp_path: Path) -> None:
    folder = tmp_path / ("long" * 20) / ("longer" * 10)
    folder.mkdir(parents=True)
    path = folder / "d.sock"
    assert len(str(path)) > 107
    async with Supervisor.open(state_dir) as sup:
        server = Server(sup, socket=str(path))
        await server.start()
        async with AsyncClient.connect(state_dir) as client:
            assert (await client.info()).state_dir == str(state_dir)
        async with AsyncClient.connect(socket=path) as client:
            assert client.state_dir == str(state_dir)
            run = await client.start(Command(argv=["true"]))
            await client.wait(run.id, timeout=PATIENCE)
        await server.close(drain=0)


@pytest.mark.parametrize(
    ("listener", "own", "directory", "trusted"),
    [
        (1000, 1000, 0, True),  # ours
        (0, 1000, 1000, True),  # root
        (998, 1000, 998, True),  # a service of its own user, in its own directory
        (1001, 1000, 0, False),  # anybody's, in /tmp
        (1001, 1000, 1000, False),  # anybody's, in a directory of ours that is open to all
        (1001, 0, 0, False),  # also when we are root
    ],
)
def test_whom_secrets_are_told(listener: int, own: int, directory: int, trusted: bool) -> None:
    assert is_trusted(listener, own, directory) is trusted


def test_a_directory_without_a_name_is_not_the_default(tmp_path: Path) -> None:
    for chosen in ("", b""):
        with pytest.raises(SupervisorError) as caught:
            state_directory(chosen)  # type: ignore[arg-type]  # bytes are taken, though nobody is told to give them
        check_error(caught.value, ErrorCode.STATE_DIR_REFUSED)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs a user without an account")
def test_a_user_without_a_home_is_told_so() -> None:
    code = """
import os, platformdirs
from durable_supervisor import SupervisorError
from durable_supervisor.process.places import state_directory
os.setgid(65533); os.setuid(65533)
try:
    state_directory(None)
except SupervisorError as error:
    print(error.code.value, error.hint)
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("HOME", "XDG_", "DURABLE_"))
        },
    )
    assert done.stdout == "STATE_DIR_REFUSED set HOME, or choose a directory with --state-dir\n"


LISTEN_AS = """
import os, socket, sys
listener = socket.socket(socket.AF_UNIX)
os.setgid(65534); os.setuid(65534)
listener.bind(sys.argv[1]); os.chmod(sys.argv[1], 0o666); listener.listen()
print("on", flush=True)
listener.accept()
sys.stdin.read()
"""


@pytest.fixture
def shared() -> Iterator[Path]:
    """A directory like /tmp, within reach of every user."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        os.chmod(name, 0o1777)
        yield Path(name)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs a second user")
def test_a_strangers_socket_is_refused(shared: Path) -> None:
    """It stands where everybody may put one, and its owner would like to read what we send."""
    path = shared / "x.sock"
    with subprocess.Popen(
        [sys.executable, "-c", LISTEN_AS, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as stranger:
        assert stranger.stdout is not None
        assert stranger.stdout.readline() == b"on\n"
        with pytest.raises(SupervisorError) as caught:
            Client.connect(socket=path)
        check_error(caught.value, ErrorCode.PEER_DENIED)
        assert caught.value.details == {"socket": str(path), "uid": 65534}
        stranger.kill()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs a second user")
def test_a_directory_that_we_may_not_enter(shared: Path) -> None:
    code = """
import os, sys
from durable_supervisor import Client, SupervisorError
os.setgid(65534); os.setuid(65534)
try:
    Client.connect(sys.argv[1])
except SupervisorError as error:
    print(error.code.value, error.hint)
"""
    private = shared / "private"
    private.mkdir(mode=0o700)
    done = subprocess.run([sys.executable, "-c", code, private], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("PEER_DENIED")
    assert "--caller" in done.stdout


def test_a_refused_connection_leaves_no_descriptor(tmp_path: Path) -> None:
    before = open_files()
    stale = tmp_path / "stale.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(stale))
    for path in (stale, tmp_path / "none.sock", tmp_path / "no" / "folder.sock"):
        with pytest.raises(OSError):
            open_socket(str(path))
    assert open_files() - before == set()


def open_files() -> set[tuple[str, str]]:
    """By number and what they are of; those of earlier tests may still go."""
    found = set()
    for fd in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # that of the list itself
            found.add((fd, os.readlink(f"/proc/self/fd/{fd}")))
    return found
