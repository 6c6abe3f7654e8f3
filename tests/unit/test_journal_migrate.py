"""Migrations: names, one transaction each, refusal of what is newer or foreign."""

from __future__ import annotations

import hashlib
import os
import sqlite3
from pathlib import Path

import pytest

from durable_supervisor.journal import migrate
from durable_supervisor.journal.connection import Journal
from durable_supervisor.journal.migrate import Migration
from durable_supervisor.journal.reader import JournalReader
from durable_supervisor.model.errors import ErrorCode, SupervisorError

# Released files never change.  A new migration adds its line here.
KNOWN = {
    "0001_initial.sql": "fd61e8a4fbe13c807179eeafa380399b9ca58d926fb420fd10429c9df226ce76",
    "0002_queue_and_owners.sql": "0be872c25f902fcc437ed7defd7f085d87055b37783a2c63faf3f0b209e2fd41",
    "0003_collected.sql": "982c540f0b1e81f2ec83a18bb239574b847c0e8eb3aeff44c252e16f71f4fff1",
    "0004_fewer_trees.sql": "288f9df8473e3341c039965aab3bd20274f1b8aba21ef459231c01a8505fcba9",
}


def test_names_are_regular_and_count_without_gap() -> None:
    names = sorted(path.name for path in Path(migrate.directory()).iterdir())
    assert [migrate.version_of(name) for name in names] == list(range(1, len(names) + 1))
    assert [migration.version for migration in migrate.load()] == list(range(1, len(names) + 1))
    assert names == sorted(KNOWN)


def test_files_hold_whole_statements_and_no_transaction_of_their_own() -> None:
    for migration in migrate.load():
        for statement in migration.statements():
            code = [line for line in statement.splitlines() if line.strip() and not line.startswith("--")]
            word = code[0].split()[0].upper()
            assert word in {"CREATE", "ALTER", "INSERT", "UPDATE", "DROP", "DELETE"}, statement


@pytest.mark.parametrize("name", ["1_x.sql", "0001-x.sql", "0001_X.sql", "0001_.sql", "0001_a__b.sql"])
def test_a_misnamed_file_is_an_error(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("")
    with pytest.raises(ValueError, match="named"):
        migrate.load(tmp_path)


def test_a_gap_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "0001_a.sql").write_text("")
    (tmp_path / "0003_c.sql").write_text("")
    with pytest.raises(ValueError, match="expected version 2"):
        migrate.load(tmp_path)


def test_statements_are_split_whole() -> None:
    text = (
        "-- a;\nCREATE TABLE t (x);\nCREATE TRIGGER g AFTER INSERT ON t\nBEGIN\n  SELECT 1;\nEND;\n-- end\n"
    )
    found = list(Migration(1, "0001_x.sql", text).statements())
    assert [statement.split()[-1] for statement in found] == ["(x);", "END;"]
    with pytest.raises(ValueError, match="no end"):
        list(Migration(1, "0001_x.sql", "CREATE TABLE t (x)").statements())


def test_each_file_commits_with_its_row_or_not_at_all(tmp_path: Path) -> None:
    conn = sqlite3.connect(tmp_path / "journal.db", isolation_level=None)
    good = Migration(1, "0001_a.sql", "CREATE TABLE a (x);\n")
    bad = Migration(2, "0002_b.sql", "CREATE TABLE b (x);\nINSERT INTO nowhere VALUES (1);\n")
    with pytest.raises(sqlite3.OperationalError):
        migrate.migrate(conn, [good, bad], 7)
    assert not conn.in_transaction
    assert migrate.schema_version(conn) == 1
    assert {row[0] for row in conn.execute("SELECT name FROM sqlite_master")} == {"a", "schema_migrations"}
    fixed = Migration(2, "0002_b.sql", "CREATE TABLE b (x);\n")
    assert migrate.migrate(conn, [good, fixed], 8) == 2
    assert migrate.migrate(conn, [good, fixed], 9) == 2
    rows = conn.execute("SELECT * FROM schema_migrations").fetchall()
    assert rows == [(1, "0001_a.sql", good.sha256, 7), (2, "0002_b.sql", fixed.sha256, 8)]
    conn.close()


def snapshot(folder: Path) -> dict[str, bytes]:
    """Every file but -shm, which is an index that readers rebuild."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.suffix != ".db-shm"}


async def test_a_newer_journal_is_refused_and_not_written(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    await (await Journal.open(path)).close()
    # Left by a newer version that was killed: its commit is still in the -wal file only.
    pid = os.fork()
    if pid == 0:
        conn = sqlite3.connect(path, isolation_level=None)
        conn.execute("INSERT INTO schema_migrations VALUES (9999, '9999_future.sql', 'x', 1)")
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0  # noqa: ASYNC222  # ends at once
    before = snapshot(tmp_path)
    assert before["journal.db-wal"]
    with pytest.raises(SupervisorError) as newer:
        await Journal.open(path)
    assert newer.value.code is ErrorCode.JOURNAL_NEWER
    assert newer.value.details == {"journal_schema": 9999, "known_schema": len(KNOWN)}
    with pytest.raises(SupervisorError) as newer:
        JournalReader.open(path)
    assert newer.value.code is ErrorCode.JOURNAL_NEWER
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize("kind", ["text", "foreign", "damaged"])
async def test_what_is_not_a_journal_is_refused_and_not_written(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "journal.db"
    if kind == "text":
        path.write_bytes(b"this is no database, whatever its name says\n" * 100)
    elif kind == "foreign":
        conn = sqlite3.connect(path)
        conn.execute("CREATE TABLE theirs (x)")
        conn.close()
    else:
        await (await Journal.open(path)).close()
        content = bytearray(path.read_bytes())
        content[100:4096] = os.urandom(3996)
        path.write_bytes(content)
    before = path.read_bytes()
    with pytest.raises(SupervisorError) as refused:
        await Journal.open(path)
    assert refused.value.code is ErrorCode.JOURNAL_CORRUPT
    with pytest.raises(SupervisorError) as refused:
        JournalReader.open(path)
    assert refused.value.code is ErrorCode.JOURNAL_CORRUPT
    assert path.read_bytes() == before


async def test_damage_met_later_is_typed(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    await (await Journal.open(path)).close()
    content = bytearray(path.read_bytes())
    content[4096:] = os.urandom(len(content) - 4096)
    path.write_bytes(content)
    with pytest.raises(SupervisorError) as refused:
        async with await Journal.open(path) as journal:
            await journal.write(lambda conn: conn.execute("SELECT * FROM runs").fetchall())
    assert refused.value.code is ErrorCode.JOURNAL_CORRUPT


def test_an_empty_journal_is_not_yet_one_for_readers(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    for _ in range(2):
        with pytest.raises(SupervisorError) as missing:
            JournalReader.open(path)
        assert missing.value.code is ErrorCode.JOURNAL_MISSING
        path.write_bytes(b"")


async def test_a_creation_cut_short_is_finished(tmp_path: Path) -> None:
    (tmp_path / "journal.db").write_bytes(b"")
    async with await Journal.open(tmp_path / "journal.db") as journal:
        assert await journal.read(migrate.schema_version) == len(KNOWN)


@pytest.mark.parametrize("name", sorted(KNOWN))
def test_released_files_never_change(name: str) -> None:
    digest = hashlib.sha256((Path(migrate.directory()) / name).read_bytes()).hexdigest()
    assert digest == KNOWN[name], "a released migration was edited; write a new one"
