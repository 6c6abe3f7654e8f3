"""The owner's journal without an event loop: the same transactions and the same refusals."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from durable_supervisor.journal import meta
from durable_supervisor.journal.direct import DirectJournal
from durable_supervisor.model.errors import ErrorCode, SupervisorError
from durable_supervisor.supervisor.start.passing import run_through


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "journal.db")


@pytest.fixture
def journal(path: str) -> Iterator[DirectJournal]:
    found = run_through(DirectJournal.open(path, True, busy_seconds=0))
    yield found
    run_through(found.close())


def put(conn: sqlite3.Connection) -> None:
    conn.execute("INSERT INTO meta (key, value) VALUES ('word', 'said')")


def word(journal: DirectJournal) -> str | None:
    return run_through(journal.read(lambda conn: meta.get(conn, key="word")))


def test_what_is_written_is_read(journal: DirectJournal) -> None:
    run_through(journal.write(put))
    assert word(journal) == "said"
    assert run_through(journal.write(lambda conn: conn.total_changes, durable=False)) > 0


def test_written_back_it_is_in_the_file_itself(journal: DirectJournal, path: str) -> None:
    run_through(journal.write(put))
    journal.write_back()
    with closing(sqlite3.connect(f"file:{path}?immutable=1", uri=True)) as file_alone:
        assert meta.get(file_alone, key="word") == "said"
    run_through(journal.write(lambda conn: conn.execute("DELETE FROM meta WHERE key = 'word'").rowcount))
    assert word(journal) is None


def test_one_that_is_read_meanwhile_is_written_back_later(journal: DirectJournal, path: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM meta").fetchone()
        run_through(journal.write(put))
        journal.write_back()
        assert word(journal) == "said"


def test_work_that_fails_leaves_nothing(journal: DirectJournal) -> None:
    def work(conn: sqlite3.Connection) -> None:
        put(conn)
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        run_through(journal.write(work))
    assert word(journal) is None


def test_another_that_holds_the_lock_is_waited_for_and_then_told_of(
    journal: DirectJournal, path: str
) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(SupervisorError) as caught:
            run_through(journal.write(put))
        assert (caught.value.code, caught.value.retryable) == (ErrorCode.BUSY, True)
        other.execute("ROLLBACK")
    assert word(journal) is None
    run_through(journal.write(put))
    assert word(journal) == "said"


def test_none_is_made_where_there_should_be_one(path: str) -> None:
    with pytest.raises(SupervisorError) as caught:
        run_through(DirectJournal.open(path, False))
    assert caught.value.code is ErrorCode.JOURNAL_MISSING
    assert not Path(path).exists()


def test_one_of_a_newer_version_is_not_touched(path: str) -> None:
    run_through(run_through(DirectJournal.open(path, True)).close())
    with closing(sqlite3.connect(path)) as conn:
        conn.execute("INSERT INTO schema_migrations VALUES (9999, 'later.sql', '', 0)")
        conn.commit()
    before = Path(path).read_bytes()
    with pytest.raises(SupervisorError) as caught:
        run_through(DirectJournal.open(path, True))
    assert caught.value.code is ErrorCode.JOURNAL_NEWER
    assert Path(path).read_bytes() == before


def test_closed_it_leaves_one_file(path: str) -> None:
    journal = run_through(DirectJournal.open(path, True))
    run_through(journal.write(put))
    assert Path(f"{path}-wal").exists()
    run_through(journal.close())
    assert [found.name for found in Path(path).parent.iterdir()] == ["journal.db"]
