"""The socket's file: private, never taken from the living, kept in place."""

from __future__ import annotations

import json
import os
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from durable_supervisor import Supervisor, SupervisorError
from durable_supervisor.process import forks
from durable_supervisor.server.server import Server
from durable_supervisor.server.sockets.socket_file import SocketFile, is_stale
from tests.server.http import Http, following, raw
from tests.support import eventually_async

AS_ROOT = os.geteuid() == 0


def mode_of(path: str | Path) -> int:
    return stat.S_IMODE(os.lstat(path).st_mode)


@contextmanager
def umask(mask: int) -> Iterator[None]:
    previous = os.umask(mask)
    try:
        yield
    finally:
        os.umask(previous)


async def serves(path: str | Path) -> bool:
    try:
        return (await Http(path).get("/v1/info")).status == 200
    except OSError:
        return False


def listen(path: Path, backlog: int = 8) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(path))
    listener.listen(backlog)
    return listener


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077, 0o777])
async def test_private_whatever_the_umask(sup: Supervisor, mask: int) -> None:
    server = Server(sup)
    with umask(mask):
        await server.start()
    assert mode_of(server.path) == 0o600
    assert await serves(server.path)
    await server.close()


async def test_it_is_gone_after_close_and_nothing_else_is(sup: Supervisor, state_dir: Path) -> None:
    before = set(os.listdir(state_dir))
    server = Server(sup)
    await server.start()
    assert set(os.listdir(state_dir)) == before | {"supervisor.sock"}
    await server.close()
    await server.close()
    assert set(os.listdir(state_dir)) == before


async def test_a_stale_socket_is_replaced(sup: Supervisor, state_dir: Path) -> None:
    listen(state_dir / "supervisor.sock").close()
    (state_dir / ".supervisor.sock.new").touch()  # of a service that was killed in the middle
    server = Server(sup)
    await server.start()
    assert await serves(server.path)
    await server.close()


async def test_a_living_socket_is_never_removed(sup: Supervisor, state_dir: Path) -> None:
    path = state_dir / "supervisor.sock"
    with listen(path):
        before = os.lstat(path).st_ino
        with pytest.raises(SupervisorError, match="SOCKET_IN_USE"):
            await Server(sup).start()
        assert os.lstat(path).st_ino == before
        assert os.listdir(state_dir).count(".supervisor.sock.new") == 0


async def test_a_full_backlog_proves_nothing(sup: Supervisor, state_dir: Path) -> None:
    path = state_dir / "supervisor.sock"
    with listen(path, 0):
        clients = [socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)]
        clients[-1].setblocking(False)
        while clients[-1].connect_ex(str(path)) == 0:
            clients.append(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
            clients[-1].setblocking(False)
        with pytest.raises(SupervisorError, match="SOCKET_IN_USE"):
            await Server(sup).start()
        assert path.exists()
    for client in clients:
        client.close()


async def test_what_is_no_socket_is_left_alone(sup: Supervisor, state_dir: Path) -> None:
    path = state_dir / "supervisor.sock"
    path.write_text("precious")
    with pytest.raises(SupervisorError, match="SOCKET_IN_USE"):
        await Server(sup).start()
    assert path.read_text() == "precious"
    path.unlink()
    path.symlink_to(state_dir / "elsewhere")
    with pytest.raises(SupervisorError, match="SOCKET_IN_USE"):
        await Server(sup).start()
    assert path.is_symlink()


@pytest.mark.skipif(not AS_ROOT, reason="needs another user")
def test_a_socket_that_may_not_be_tried_is_not_removed(open_folder: Path) -> None:
    """EACCES says nothing about who listens."""
    path = open_folder / "s.sock"
    listen(path).close()
    os.chmod(path, 0o600)
    assert is_stale(str(path))
    child = os.fork()
    if child == 0:
        os.setgroups([])
        os.setresgid(65534, 65534, 65534)
        os.setresuid(65534, 65534, 65534)
        os._exit(1 if is_stale(str(path)) else 0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


async def test_made_anew_when_deleted(http: Http, server: Server) -> None:
    """Runs and open connections do not notice."""
    body = {"command": {"argv": ["sh", "-c", "echo one; read x; echo two"], "stdin": "open"}}
    run_id = (await http.post("/v1/start", body)).json()["run_id"]
    async with following(server.path, f"/v1/runs/{run_id}/follow") as events:
        os.unlink(server.path)
        await eventually_async(lambda: serves(server.path))
        assert mode_of(server.path) == 0o600
        octets = {"Content-Type": "application/octet-stream"}
        await http.ask("POST", f"/v1/runs/{run_id}/write-stdin", b"x\n", octets)
        messages = await events.all()
    text = "".join(message.data.get("text", "") for message in messages)
    assert text == "one\ntwo\n"
    assert messages[-1].data["state"] == "finished"


async def test_made_anew_when_renamed_and_when_replaced_by_a_stale_one(server: Server) -> None:
    os.rename(server.path, f"{server.path}.moved")
    await eventually_async(lambda: serves(server.path))
    os.unlink(f"{server.path}.moved")
    other = Path(server.path + ".other")
    listen(other).close()
    os.rename(other, server.path)
    await eventually_async(lambda: serves(server.path))


async def test_another_living_socket_in_its_place_stays(sup: Supervisor, state_dir: Path) -> None:
    server = Server(sup)
    await server.start()
    other = state_dir / "other.sock"
    with listen(other):
        inode = os.lstat(other).st_ino
        os.rename(other, server.path)
        await server.close()
        assert os.lstat(server.path).st_ino == inode


async def test_who_came_to_the_old_socket_in_time_is_served(server: Server) -> None:
    with raw(server.path) as early:
        os.unlink(server.path)
        await eventually_async(lambda: serves(server.path))
        early.setblocking(False)
        early.sendall(b"GET /v1/info HTTP/1.1\r\nHost: x\r\n\r\n")

        def answered() -> bytes:
            try:
                return early.recv(4096)
            except BlockingIOError:
                return b""

        assert (await eventually_async(answered)).startswith(b"HTTP/1.1 200")


async def test_elsewhere_with_a_pointer(sup: Supervisor, state_dir: Path, tmp_path: Path) -> None:
    path = tmp_path / "s.sock"
    pointer = state_dir / "supervisor.socket"
    server = Server(sup, socket=str(path), mode=0o660, group=os.getegid())
    await server.start()
    assert json.loads(pointer.read_text()) == {"socket": str(path)}
    assert mode_of(pointer) == 0o600
    assert mode_of(path) == 0o660
    assert await serves(path)
    assert not (state_dir / "supervisor.sock").exists()
    await server.close()
    assert not pointer.exists()
    assert not path.exists()


async def test_a_pointer_of_an_earlier_service_does_not_mislead(sup: Supervisor, state_dir: Path) -> None:
    pointer = state_dir / "supervisor.socket"
    pointer.write_text('{"socket": "/nowhere"}')
    server = Server(sup)
    await server.start()
    assert not pointer.exists()
    await server.close()


async def test_a_long_path(tmp_path: Path) -> None:
    folder = tmp_path / ("d" * 100) / ("e" * 100)
    folder.mkdir(parents=True)
    folder.chmod(0o700)
    async with Supervisor.open(folder) as sup:
        server = Server(sup)
        await server.start()
        assert await serves(server.path)
        os.unlink(server.path)
        await eventually_async(lambda: serves(server.path))
        await server.close()


@pytest.mark.parametrize("path", ["/", "/tmp/" + "x" * 65, "/nowhere/at/all.sock"])
async def test_paths_that_cannot_be(sup: Supervisor, path: str) -> None:
    with pytest.raises(SupervisorError, match="STATE_DIR_REFUSED"):
        await Server(sup, socket=path).start()


def test_only_one_of_two_gets_the_place(tmp_path: Path) -> None:
    path = str(tmp_path / "s.sock")
    first = SocketFile(path, 0o600, None)
    listener = first.bind()
    second = SocketFile(path, 0o600, None)
    with pytest.raises(SupervisorError, match="SOCKET_IN_USE"):
        second.bind()
    second.remove()
    assert first.in_place()
    forks.close_socket(listener)
    forks.close_socket(second.bind())
    assert not first.in_place()
    first.remove()
    assert second.in_place()


async def test_another_service_is_making_its_own_for_the_same_path(
    sup: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has taken the name that both prepare their sockets under."""
    rightly = os.link

    def late(source: str, place: str) -> None:
        os.unlink(source)
        rightly(source, place)

    monkeypatch.setattr(os, "link", late)
    with pytest.raises(SupervisorError, match="SOCKET_IN_USE"):
        await Server(sup).start()
