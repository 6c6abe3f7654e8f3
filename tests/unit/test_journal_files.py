"""The journal's files: modes under any umask, odd paths, refusals."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import sqlite3
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from durable_supervisor.journal import files, meta, migrate
from durable_supervisor.journal.connection import Journal
from durable_supervisor.journal.reader import JournalReader
from durable_supervisor.model.errors import ErrorCode, SupervisorError

# Watches every file from the moment it exists: a trace of the opens would need ptrace, so the
# modes are read inside SQLite's own steps, after each statement.
MODES = """
import asyncio, os, stat, sys
os.umask(int(sys.argv[2], 8))
from durable_supervisor.journal import files, meta, migrate
from durable_supervisor.journal.connection import Journal
seen = set()
def look(*_):
    folder = os.path.dirname(sys.argv[1])
    for name in ("journal.db", "journal.db-wal", "journal.db-shm"):
        try:
            seen.add((name, oct(stat.S_IMODE(os.stat(os.path.join(folder, name)).st_mode))))
        except FileNotFoundError:
            pass
sys.setprofile(look)
import threading
threading.setprofile(look)
async def main():
    journal = await Journal.open(sys.argv[1])
    await journal.write(lambda conn: meta.put(conn, "k", "v"))
    look()
    await journal.close()
asyncio.run(main())
sys.setprofile(None)
print(sorted(seen), oct(stat.S_IMODE(os.stat(os.path.dirname(sys.argv[1])).st_mode)))
"""


@pytest.mark.parametrize("umask", ["000", "077", "027"])
def test_private_from_the_moment_they_exist(tmp_path: Path, umask: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", MODES, str(tmp_path / "state" / "journal.db"), umask],
        env=dict(os.environ, PYTHONPATH="src"), check=True, capture_output=True, text=True,
    )  # fmt: skip
    names = ["journal.db", "journal.db-shm", "journal.db-wal"]
    assert done.stdout.strip() == f"{[(name, '0o600') for name in names]} 0o700"


async def test_what_a_reader_makes_is_private_too(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    await (await Journal.open(path)).close()
    old = os.umask(0)
    try:
        with JournalReader.open(path) as reader:
            reader.read(meta.next_serial)
            for name in os.listdir(tmp_path):
                assert stat.S_IMODE(os.stat(tmp_path / name).st_mode) == 0o600
    finally:
        os.umask(old)


async def test_rights_that_a_copy_gave_are_taken_back(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    await (await Journal.open(path)).close()
    os.chmod(path, 0o644)
    async with await Journal.open(path) as journal:
        await journal.write(lambda conn: meta.put(conn, "k", "v"))
        for suffix in files.SUFFIXES:
            assert stat.S_IMODE(os.stat(f"{path}{suffix}").st_mode) == 0o600


@pytest.mark.parametrize(
    "name",
    [
        b"with space", b"new\nline", b"not utf-8 \xff\xfe", b"why?mode=memory", b"sharp#1", b"100%41",
        b"file:x", b"quote'\"s", "ünïcödé 雪".encode(), b"-dash", b"a;b&c=d",
    ],
)  # fmt: skip
async def test_any_path_works(tmp_path: Path, name: bytes) -> None:
    folder = os.path.join(os.fsencode(tmp_path), name)
    path = os.fsdecode(os.path.join(folder, b"journal.db"))
    async with await Journal.open(path) as journal:
        await journal.write(lambda conn: meta.put(conn, "k", "v"))
        with JournalReader.open(path) as reader:
            assert reader.read(lambda conn: meta.get(conn, "k")) == "v"
    assert os.listdir(os.fsencode(tmp_path)) == [name]
    assert os.listdir(folder) == [b"journal.db"]
    with JournalReader.open(path) as reader:
        assert reader.read(lambda conn: meta.get(conn, "k")) == "v"


async def test_a_relative_path_is_fixed_at_opening(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    async with await Journal.open("journal.db") as journal:
        assert journal.path == str(tmp_path / "journal.db")


@pytest.mark.parametrize("kind", ["symlink", "dangling", "fifo", "directory", "socket"])
@pytest.mark.parametrize("suffix", files.SUFFIXES)
async def test_what_is_no_regular_file_is_refused(tmp_path: Path, kind: str, suffix: str) -> None:
    path = tmp_path / "journal.db"
    target = tmp_path / "elsewhere.db"
    await (await Journal.open(target)).close()
    before = target.read_bytes()
    if suffix:
        await (await Journal.open(path)).close()
    place = f"{path}{suffix}"
    if kind == "symlink":
        os.symlink(target, place)
    elif kind == "dangling":
        os.symlink(tmp_path / "nowhere", place)
    elif kind == "fifo":
        os.mkfifo(place)
    elif kind == "directory":
        os.mkdir(place)
    else:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(place)
    with pytest.raises(SupervisorError) as refused:
        await Journal.open(path)
    assert refused.value.code is ErrorCode.STATE_DIR_REFUSED
    with pytest.raises(SupervisorError) as refused:
        JournalReader.open(path)
    assert refused.value.code is ErrorCode.STATE_DIR_REFUSED
    assert target.read_bytes() == before
    assert not (tmp_path / "nowhere").exists()


async def test_no_journal_where_none_may_be_made(tmp_path: Path) -> None:
    with pytest.raises(SupervisorError) as missing:
        await Journal.open(tmp_path / "journal.db", create=False)
    assert missing.value.code is ErrorCode.JOURNAL_MISSING
    assert os.listdir(tmp_path) == []


async def test_what_a_deleted_journal_left_is_not_replayed_into_a_new_one(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    pid = os.fork()
    if pid == 0:
        conn = sqlite3.connect(path, isolation_level=None)
        conn.execute("PRAGMA journal_mode = WAL")
        conn.execute("CREATE TABLE old (x)")
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0  # noqa: ASYNC222  # ends at once
    assert os.stat(f"{path}-wal").st_size
    os.unlink(path)
    async with await Journal.open(path) as journal:
        old = "SELECT count(*) FROM sqlite_master WHERE name = 'old'"
        assert await journal.read(lambda conn: conn.execute(old).fetchone()[0]) == 0


async def test_a_journal_whose_maker_was_cut_off_is_made_anew(tmp_path: Path) -> None:
    """SQLite's rollback file stands beside it, which only a writer can do away with."""
    making = tmp_path / "making"
    making.mkdir()
    with contextlib.closing(sqlite3.connect(making / "journal.db", isolation_level=None)) as maker:
        maker.execute("PRAGMA cache_size = 1")  # so that it writes before it commits
        maker.execute("BEGIN IMMEDIATE")
        maker.execute("CREATE TABLE half (made)")
        for _ in range(50):
            maker.execute("INSERT INTO half VALUES (randomblob(4000))")
        for name in ("journal.db", "journal.db-journal"):
            shutil.copy(making / name, tmp_path / name)
    assert (tmp_path / "journal.db-journal").stat().st_size > 0
    path = tmp_path / "journal.db"
    path.chmod(0o600)
    with pytest.raises(SupervisorError) as caught:
        JournalReader.open(path)
    assert caught.value.code is ErrorCode.JOURNAL_MISSING
    async with await Journal.open(path) as journal:
        assert await journal.read(migrate.schema_version) == len(migrate.load())
    assert not (tmp_path / "journal.db-journal").exists()


async def test_a_path_too_long_for_sqlite_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / ("x" * 200) / ("y" * 200) / ("z" * 200)
    with pytest.raises(SupervisorError) as refused:
        await Journal.open(folder / "journal.db")
    assert refused.value.code is ErrorCode.STATE_DIR_REFUSED


async def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file" / "journal.db", tmp_path / "file" / "more" / "journal.db"):
        with pytest.raises(SupervisorError) as refused:
            await Journal.open(path)
        assert refused.value.code is ErrorCode.STATE_DIR_REFUSED


async def test_a_reader_notices_another_file(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    await (await Journal.open(path)).close()
    with JournalReader.open(path) as reader:
        assert not reader.replaced()
        os.rename(path, tmp_path / "aside.db")
        assert reader.replaced()
        await (await Journal.open(path)).close()
        assert reader.replaced()
    reader.close()


READ_ONLY = """
set -e
mount --bind "$1" "$1"
mount -o remount,bind,ro "$1"
exec "$2" -c '
import sys
from durable_supervisor.journal.reader import JournalReader
from durable_supervisor.journal import meta
with JournalReader.open(sys.argv[1]) as reader:
    print(reader.read(lambda conn: meta.get(conn, "k")))
' "$1/journal.db"
"""


@pytest.mark.parametrize("closed", [True, False])
async def test_reading_on_a_read_only_mount(tmp_path: Path, closed: bool) -> None:
    unshare = ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--map-root-user"])]
    probe = ["mount", "--bind", str(tmp_path), str(tmp_path)]
    if subprocess.run([*unshare, *probe], capture_output=True, check=False).returncode:  # noqa: ASYNC221
        pytest.skip("no right to mount here")
    journal = await Journal.open(tmp_path / "journal.db")
    await journal.write(lambda conn: meta.put(conn, "k", "v"))
    if closed:
        await journal.close()
    done = subprocess.run(  # noqa: ASYNC221
        [*unshare, "sh", "-c", READ_ONLY, "sh", str(tmp_path), sys.executable],
        env=dict(os.environ, PYTHONPATH="src"),
        capture_output=True,
        text=True,
        check=False,
    )
    await journal.close()
    assert (done.stdout, done.stderr) == ("v\n", "")
