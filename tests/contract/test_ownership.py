"""The journal, the key and the lock of a state directory: one owner, and only of what is its own."""

from __future__ import annotations

import asyncio
import os
import resource
import shutil
import socket
import sqlite3
from pathlib import Path

import pytest

from durable_supervisor import Command, ErrorCode, Observer, Supervisor, SupervisorError
from durable_supervisor.supervisor.state.state_dir import Ownership, StateDir
from tests.contract.hosts import HostScript, check_error, host, open_error, tree_of, works
from tests.contract.test_state_dir import AS_NOBODY, ROOT_ONLY
from tests.support import PATIENCE, reap_state_dir

# The journal and the key.


async def test_a_newer_schema_is_refused_and_nothing_written(state_dir: Path) -> None:
    await works(state_dir)
    with sqlite3.connect(state_dir / "journal.db") as conn:
        conn.execute("INSERT INTO schema_migrations VALUES (9999, '9999_later.sql', '', 0)")
    conn.close()
    before = tree_of(state_dir)
    await open_error(state_dir, ErrorCode.JOURNAL_NEWER)
    async with Observer.open(state_dir) as seen:
        with pytest.raises(SupervisorError) as caught:
            await seen.list()
    check_error(caught.value, ErrorCode.JOURNAL_NEWER)
    assert tree_of(state_dir) == before
    with pytest.raises(SupervisorError) as caught:
        await Supervisor.recover(state_dir)
    check_error(caught.value, ErrorCode.JOURNAL_NEWER)
    assert tree_of(state_dir) == before


async def test_a_journal_that_is_a_symlink_is_refused(tmp_path: Path, state_dir: Path) -> None:
    await works(state_dir)
    moved = tmp_path / "elsewhere.db"
    shutil.move(state_dir / "journal.db", moved)
    (state_dir / "journal.db").symlink_to(moved)
    before = moved.read_bytes()
    await open_error(state_dir, ErrorCode.STATE_DIR_REFUSED)
    with pytest.raises(SupervisorError) as caught:
        await Supervisor.recover(state_dir)
    check_error(caught.value, ErrorCode.STATE_DIR_REFUSED)
    assert moved.read_bytes() == before


async def test_a_journal_replaced_under_its_owner_takes_no_intent(tmp_path: Path, state_dir: Path) -> None:
    async with Supervisor.open(state_dir) as sup:
        moved = tmp_path / "moved.db"
        os.rename(state_dir / "journal.db", moved)
        (state_dir / "journal.db").symlink_to(moved)
        with pytest.raises(SupervisorError) as caught:
            await sup.start(Command(argv=["true"]))
        check_error(caught.value, ErrorCode.JOURNAL_MISMATCH)
        (state_dir / "journal.db").unlink()
        with pytest.raises(SupervisorError) as caught:
            await sup.start(Command(argv=["true"]))
        check_error(caught.value, ErrorCode.JOURNAL_MISSING)
        os.rename(moved, state_dir / "journal.db")
        run = await sup.start(Command(argv=["true"]))
        await sup.wait(run.id, timeout=PATIENCE)


async def test_a_directory_that_something_else_has_taken_the_place_of_takes_no_intent(
    tmp_path: Path, state_dir: Path
) -> None:
    async with Supervisor.open(state_dir) as sup:
        moved = tmp_path / "moved"
        os.rename(state_dir, moved)
        state_dir.write_text("a file")
        with pytest.raises(SupervisorError) as caught:
            await sup.start(Command(argv=["true"]))
        check_error(caught.value, ErrorCode.STATE_DIR_REFUSED)
        state_dir.unlink()
        os.rename(moved, state_dir)
        run = await sup.start(Command(argv=["true"]))
        await sup.wait(run.id, timeout=PATIENCE)


@pytest.mark.parametrize("what", ["missing", "short", "long", "symlink", "fifo", "directory"])
async def test_a_key_that_is_not_ours_is_refused(tmp_path: Path, state_dir: Path, what: str) -> None:
    await works(state_dir)
    key = state_dir / "key"
    content = key.read_bytes()
    assert len(content) == 32
    os.rename(key, tmp_path / "kept")
    match what:
        case "short":
            key.write_bytes(content[:31])
        case "long":
            key.write_bytes(content + b"x")
        case "symlink":
            key.symlink_to(tmp_path / "kept")
        case "fifo":
            os.mkfifo(key, 0o600)
        case "directory":
            key.mkdir(mode=0o700)
    async with asyncio.timeout(PATIENCE):
        await open_error(state_dir, ErrorCode.STATE_DIR_REFUSED)
    if key.is_dir() and not key.is_symlink():
        key.rmdir()
    else:
        key.unlink(missing_ok=True)
    os.rename(tmp_path / "kept", key)
    await works(state_dir)


async def test_another_directorys_key_lets_no_id_run_again(state_dir: Path) -> None:
    """Its digests cannot be compared: no known id is taken for new, or for the same."""
    async with Supervisor.open(state_dir) as sup:
        run = await sup.start(Command(argv=["true"]), request_id="one")
        await sup.wait(run.id, timeout=PATIENCE)
    (state_dir / "key").write_bytes(b"k" * 32)
    try:
        async with Supervisor.open(state_dir) as sup:
            await sup.start(Command(argv=["true"]), request_id="one")
    except SupervisorError as error:
        check_error(error, ErrorCode.IDEMPOTENCY_CONFLICT, ErrorCode.STATE_DIR_REFUSED)
    else:
        raise AssertionError("a foreign key was taken for ours")


# The owner.


async def test_a_second_opener_is_told_the_owners_pid(tmp_path: Path, state_dir: Path) -> None:
    code = "async with Supervisor.open(STATE):\n    report(pid=os.getpid())\n    await stay()"
    with HostScript(code, state_dir, tmp_path) as owner:
        pid = owner.facts()["pid"]
        error = await open_error(state_dir, ErrorCode.STATE_DIR_IN_USE)
        assert error.details["pid"] == pid
        assert error.retryable
        with pytest.raises(SupervisorError) as caught:
            await Supervisor.recover(state_dir, wait=0)
        check_error(caught.value, ErrorCode.STATE_DIR_IN_USE)
        # Whatever a cleaner deletes, no second owner gets in.
        for name in ("supervisor.lock", "supervisor.owner"):
            (state_dir / name).unlink()
            await open_error(state_dir, ErrorCode.STATE_DIR_IN_USE, wait=0.1)
        owner.kill()
        await works(state_dir)


async def test_a_second_opener_waits_for_a_short_lived_owner(tmp_path: Path, state_dir: Path) -> None:
    code = """
    async with Supervisor.open(STATE):
        report(pid=os.getpid())
        while not os.path.exists(REPORT + ".go"):
            await asyncio.sleep(0.01)
    """
    with HostScript(code, state_dir, tmp_path) as owner:
        owner.facts()
        opening = asyncio.ensure_future(Supervisor.open(state_dir, wait=PATIENCE)._opener())
        await asyncio.sleep(0.1)
        assert not opening.done()
        Path(f"{owner.report_path}.go").touch()
        sup = await opening
        await sup.close()
        owner.finish()


async def test_a_waiting_opener_can_be_cancelled(state_dir: Path) -> None:
    async with Supervisor.open(state_dir):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await Supervisor.open(state_dir, wait=60)
    await works(state_dir)


async def test_one_process_may_not_own_it_twice(state_dir: Path) -> None:
    async with Supervisor.open(state_dir) as sup:
        error = await open_error(state_dir, ErrorCode.STATE_DIR_IN_USE)
        assert error.details["pid"] == os.getpid()
        run = await sup.start(Command(argv=["true"]))
        await sup.wait(run.id, timeout=PATIENCE)
    await works(state_dir)


async def test_many_openers_one_owner_at_a_time(state_dir: Path) -> None:
    owners = 0

    async def own() -> None:
        nonlocal owners
        async with Supervisor.open(state_dir, wait=PATIENCE):
            owners += 1
            assert owners == 1
            await asyncio.sleep(0.005)
            owners -= 1

    await asyncio.gather(*(own() for _ in range(6)))


@pytest.mark.parametrize("name", ["supervisor.lock", "supervisor.owner"])
@pytest.mark.parametrize("what", ["symlink", "directory", "fifo"])
async def test_a_strange_lock_file_is_refused_or_does_not_matter(
    tmp_path: Path, state_dir: Path, name: str, what: str
) -> None:
    """It never blocks, never writes through a link, and never leaves the directory locked."""
    victim = tmp_path / "victim"
    victim.write_text("mine")
    match what:
        case "symlink":
            (state_dir / name).symlink_to(victim)
        case "directory":
            (state_dir / name).mkdir()
        case "fifo":
            os.mkfifo(state_dir / name)
    async with asyncio.timeout(PATIENCE):
        try:
            await works(state_dir)
        except SupervisorError as error:
            check_error(error, ErrorCode.STATE_DIR_REFUSED)
    assert victim.read_text() == "mine"
    if what == "directory":
        (state_dir / name).rmdir() if (state_dir / name).is_dir() else None
    else:
        (state_dir / name).unlink(missing_ok=True)
    await works(state_dir)


@ROOT_ONLY
@pytest.mark.parametrize(("owner", "mode"), [(0, 0o600), (0, 0o666), (65534, 0o400)])
async def test_a_lock_file_that_is_not_ours_to_write_is_refused(
    tmp_path: Path, owner: int, mode: int
) -> None:
    """As an ordinary user: somebody else's, be it open to all, and one of our own that is read-only."""
    state, answers = tmp_path / "state", tmp_path / "answers"
    for folder in (state, answers):
        folder.mkdir(mode=0o700)
        os.chown(folder, 65534, 65534)
    lock = state / "supervisor.lock"
    lock.touch()
    lock.chmod(mode)
    os.chown(lock, owner, owner)
    code = """
    try:
        async with Supervisor.open(STATE):
            report(code=None)
    except SupervisorError as error:
        report(code=error.code.value, message=error.message, hint=error.hint)
    """
    facts = host(code, state, answers, prefix=AS_NOBODY, cwd="/")
    assert facts["code"] == "STATE_DIR_REFUSED"
    assert str(lock) in facts["message"] or str(state) in facts["message"]
    assert facts["hint"]
    assert lock.lstat().st_uid == owner, "left as it was"
    lock.unlink()
    assert host(code, state, answers, prefix=AS_NOBODY, cwd="/")["code"] is None


@pytest.mark.parametrize("room", [0, 1])
async def test_an_opening_short_of_descriptors_keeps_no_lock(state_dir: Path, room: int) -> None:
    """The lock file's may be the one that is not to be had, or the directory's, with that lock taken."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = os.dup(0)
    os.close(lowest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest + room, hard))
    try:
        with pytest.raises(SupervisorError) as caught:
            await Ownership.take(StateDir(str(state_dir)), 0)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    check_error(caught.value, ErrorCode.BUSY)
    assert "Too many open files" in caught.value.message
    assert os.dup(0) == lowest
    os.close(lowest)
    await works(state_dir)


async def test_backups_of_a_closed_directory_are_one_file(state_dir: Path) -> None:
    """After a clean end journal.db alone holds everything."""
    await works(state_dir)
    async with Supervisor.open(state_dir) as sup:
        await sup.reconcile()
    log = state_dir / "journal.db-wal"  # a reader may have left an empty one
    assert not log.exists() or log.stat().st_size == 0
    with sqlite3.connect(f"file:{state_dir}/journal.db?mode=ro&immutable=1", uri=True) as conn:
        assert conn.execute("SELECT state FROM runs").fetchall() == [("finished",)]
    conn.close()


def test_no_tcp_port_is_opened(tmp_path: Path, state_dir: Path) -> None:
    facts = host(
        """
        async with Supervisor.open(STATE) as sup:
            run = await sup.start(Command(argv=["sleep", "60"]))
            seen = await sup.inspect(run.id)
            inodes = set()
            for pid in (os.getpid(), seen.worker["pid"], seen.program["pid"]):
                for fd in os.listdir(f"/proc/{pid}/fd"):
                    try:
                        target = os.readlink(f"/proc/{pid}/fd/{fd}")
                    except OSError:
                        continue
                    if target.startswith("socket:["):
                        inodes.add(target[8:-1])
            used = set()
            for table in ("tcp", "tcp6", "udp", "udp6"):
                with open(f"/proc/net/{table}") as file:
                    used |= {line.split()[9] for line in file.readlines()[1:]}
            await sup.stop(run.id)
        report(found=sorted(inodes & used))
        """,
        state_dir,
        tmp_path,
    )
    assert facts["found"] == []
    assert socket.AF_UNIX
    reap_state_dir(state_dir)


async def test_a_half_made_file_of_a_killed_owner_is_cleared_away(state_dir: Path) -> None:
    (state_dir / "key.new").write_bytes(b"half of a k")
    (state_dir / "supervisor.owner.new").write_bytes(b"{")
    await works(state_dir)
    assert list(state_dir.glob("*.new")) == []
