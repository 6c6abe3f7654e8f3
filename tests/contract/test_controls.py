"""The worker's socket: applied once, answered, private, and unharmed by whoever talks nonsense to it."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import stat

import pytest

from durable_supervisor.model.errors import ErrorCode, SupervisorError
from durable_supervisor.model.events import Kind
from durable_supervisor.process.channel import encode_frame
from durable_supervisor.supervisor.observer import Observer
from tests.contract.peers import Peer, alive, end, long_run, served, socket_of
from tests.contract.runs import Marker, Runs, gone
from tests.support import eventually, eventually_async, running


async def test_the_same_control_twice_is_applied_once(runs: Runs, marker: Marker) -> None:
    run, path = await long_run(runs, marker, "trap 'echo usr1' USR1")
    first, second = Peer(path), Peer(path)
    message: dict[str, object] = {"op": "signal", "id": "once", "signal": 18, "target": "tree"}
    answers = [first.ask(message), second.ask(message), first.ask(message)]
    assert answers[0] == answers[1] == answers[2]
    assert answers[0] is not None
    assert answers[0]["result"] == "delivered"
    for kind in (Kind.CONTROL_RECEIVED, Kind.CONTROL_APPLIED, Kind.PROGRAM_SIGNALLED):
        assert len(await runs.events(run, kinds={kind})) == 1
    first.close()
    second.close()
    await end(runs, run, marker)


async def test_a_repeated_stdin_write_reaches_the_program_once(runs: Runs) -> None:
    run = await runs.start(["cat"], stdin="open")
    peer = Peer(await socket_of(runs, run))
    answers = [peer.ask({"op": "stdin", "id": "w1"}, b"data") for _ in range(3)]
    assert [one["bytes"] for one in answers if one is not None] == [4, 4, 4]
    peer.close()
    await runs.sup.write_stdin(run.id, b"", eof=True)
    await runs.wait(run)
    assert await runs.output(run) == b"data"


async def test_a_control_is_logged_before_it_is_applied(runs: Runs, marker: Marker) -> None:
    run, _ = await long_run(runs, marker)
    receipt = await runs.sup.signal(run.id, signal.SIGCONT)
    assert receipt.result == "delivered"
    log = [one for one in await runs.events(run) if one.kind.startswith(("control.", "program.signalled"))]
    assert [one.kind for one in log] == [Kind.CONTROL_RECEIVED, Kind.PROGRAM_SIGNALLED, Kind.CONTROL_APPLIED]
    assert log[0].detail["id"] == log[2].detail["id"] == receipt.control_id
    assert log[0].detail["peer_pid"] == os.getpid()
    assert log[1].detail["name"] == "SIGCONT"
    assert receipt.seq == log[2].seq
    await end(runs, run, marker)


async def test_signals_go_to_the_leader_or_to_the_tree(runs: Runs, marker: Marker) -> None:
    script = """
trap 'echo leader' USR1
(trap 'echo child; exit' USR1; echo up; while :; do sleep .02; done) &
while :; do sleep .02; done
"""
    run = await runs.sh(f"{script} # {marker}")
    await runs.printed(run, b"up")
    await runs.sup.signal(run.id, signal.SIGUSR1)
    await runs.printed(run, b"leader")
    assert b"child" not in await runs.output(run)
    await runs.sup.stop(run.id, grace=0)
    gone(marker)


async def test_a_fatal_signal_is_the_programs_own_end(runs: Runs, marker: Marker) -> None:
    run, _ = await long_run(runs, marker)
    await runs.sup.signal(run.id, signal.SIGKILL, target="tree")
    receipt = await runs.receipt(run)
    assert receipt["outcome"] == {"kind": "signaled", "code": None, "signal": 9}
    gone(marker)
    with pytest.raises(SupervisorError) as caught:
        await runs.sup.signal(run.id, signal.SIGTERM)
    assert caught.value.code is ErrorCode.NOT_RUNNING


@pytest.mark.parametrize(
    ("signo", "target"), [(0x7FFF, "leader"), (-1, "leader"), (0, "leader"), (15, "everyone")]
)
async def test_impossible_signals_are_refused(runs: Runs, marker: Marker, signo: int, target: str) -> None:
    run, _ = await long_run(runs, marker)
    with pytest.raises(SupervisorError) as caught:
        await runs.sup.signal(run.id, signo, target=target)
    assert caught.value.code is ErrorCode.INVALID_REQUEST
    await end(runs, run, marker)


async def test_a_deleted_socket_is_made_anew(runs: Runs, marker: Marker) -> None:
    run, path = await long_run(runs, marker)
    path.unlink()
    async with Observer.open(runs.sup.state_dir) as other:  # who owns the run has a channel besides
        receipt = await other.signal(run.id, signal.SIGCONT)
    assert receipt.result == "delivered"
    assert stat.S_ISSOCK(path.stat().st_mode)
    path.unlink()
    await end(runs, run, marker)
    eventually(lambda: not path.exists())


async def test_the_socket_is_private_and_goes_with_the_run(runs: Runs, marker: Marker) -> None:
    previous = os.umask(0)
    try:
        run, path = await long_run(runs, marker)
    finally:
        os.umask(previous)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    await end(runs, run, marker)
    eventually(lambda: not path.exists())


@pytest.mark.skipif(os.geteuid() != 0, reason="needs another user to try it as")
async def test_another_user_is_not_let_in(runs: Runs, marker: Marker) -> None:
    run, path = await long_run(runs, marker)
    for folder in [path.parent, *path.parents[:6]]:
        if str(folder).startswith(str(runs.state_dir.parent.parent)):
            os.chmod(folder, 0o755)
    os.chmod(path, 0o666)  # as if somebody had opened the doors
    stop = encode_frame({"op": "stop", "id": "intruder"})
    directory = os.open(path.parent, os.O_PATH)
    pid = os.fork()
    if pid == 0:
        try:
            os.setgid(65534)
            os.setuid(65534)
            stranger = socket.socket(socket.AF_UNIX)
            stranger.connect(f"/proc/self/fd/{directory}/{path.name}")
            stranger.sendall(stop)
            os._exit(0 if stranger.recv(100) == b"" else 1)
        except OSError:
            os._exit(0)
        finally:
            os._exit(2)
    os.close(directory)
    _, status = await asyncio.to_thread(os.waitpid, pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    await alive(runs, run, path)
    assert await runs.events(run, kinds={Kind.CONTROL_RECEIVED}) == []
    await end(runs, run, marker)


async def test_a_peer_that_never_reads_is_dropped_and_harms_nobody(runs: Runs, marker: Marker) -> None:
    run, path = await long_run(runs, marker)
    deaf = Peer(path)
    deaf.socket.setblocking(False)
    ping = encode_frame({"op": "ping"}) * 2000

    def flood() -> bool:
        try:
            while deaf.socket.send(ping):
                pass
        except BlockingIOError:
            return False
        except OSError:
            return True  # hung up on
        return True

    await eventually_async(flood)
    deaf.close()
    await alive(runs, run, path)
    await end(runs, run, marker)


async def test_idle_connections_do_not_keep_others_out(runs: Runs, marker: Marker) -> None:
    run, path = await long_run(runs, marker)
    idle = [Peer(path) for _ in range(60)]
    await alive(runs, run, path)
    for one in idle:
        one.close()
    await end(runs, run, marker)


async def test_more_connections_than_the_worker_takes_are_no_harm(runs: Runs, marker: Marker) -> None:
    run, path = await long_run(runs, marker)
    crowd = [Peer(path) for _ in range(60)]
    for _ in range(3):
        assert crowd[-1].ask({"op": "ping"}) is not None
        crowd += [Peer(path) for _ in range(30)]
    for one in crowd:
        one.close()
    await eventually_async(lambda: served(path))
    await alive(runs, run, path)
    await end(runs, run, marker)


async def test_an_observer_stops_a_run_of_a_living_owner(runs: Runs, marker: Marker) -> None:
    run, _ = await long_run(runs, marker)
    async with Observer.open(runs.state_dir) as obs:
        receipt = await obs.stop(run.id[:10])
    gone(marker)
    assert receipt.confirmed
    assert (await runs.wait(run)).outcome == receipt.outcome


async def test_no_stray_signal_of_its_program_ends_a_worker(runs: Runs) -> None:
    script = """
import os, signal
fatal = {signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM, signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE,
         signal.SIGILL, signal.SIGABRT, signal.SIGSYS, signal.SIGTRAP, signal.SIGSTKFLT}
for signo in set(signal.Signals) - fatal - {signal.SIGRTMIN, signal.SIGRTMAX}:
    os.kill(os.getppid(), signo)
print("sent")
raise SystemExit(5)
"""
    run = await runs.python(script)
    receipt = await runs.receipt(run)
    assert receipt["outcome"] == {"kind": "exited", "code": 5, "signal": None}
    assert await runs.output(run) == b"sent\n"


async def test_a_worker_is_gone_when_its_run_is(runs: Runs) -> None:
    run = await runs.sh("exit 0")
    worker = await runs.worker(run.id)
    await runs.wait(run)
    eventually(lambda: not running(worker.pid))


async def test_who_gives_up_while_the_worker_stands_still_spoils_no_later_control(runs: Runs) -> None:
    """More than the channel holds at once: the rest goes out too, before any other control."""
    run = await runs.sh("wc -c; sleep 3131", stdin="open")
    worker = (await runs.worker(run.id)).pid
    os.kill(worker, signal.SIGSTOP)
    for _ in range(2):
        with pytest.raises(SupervisorError) as caught:
            await runs.sup.write_stdin(run.id, b"x" * 1_000_000, timeout=0.1)
        assert caught.value.code is ErrorCode.NOT_CONFIRMED
    os.kill(worker, signal.SIGCONT)
    await runs.sup.write_stdin(run.id, b"end", eof=True)
    await runs.printed(run, b"1000003")
    assert (await runs.sup.stop(run.id)).result == "stopping"
