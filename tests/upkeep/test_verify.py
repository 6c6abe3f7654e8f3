"""Every kind of damage is found, where it is, and nothing else is; good directories are told to be good."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
import zipfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
import pytest_asyncio

from durable_supervisor import Command, ErrorCode, Observer, Supervisor, SupervisorError, VerifyReport
from durable_supervisor.journal import migrate
from durable_supervisor.runlog.format import SEGMENT_MAGIC
from durable_supervisor.upkeep.backup import backup
from durable_supervisor.upkeep.verify import verify
from tests.cli.helpers import Cli
from tests.contract.hosts import flip, tree_of
from tests.contract.runs import Marker
from tests.gc.aging import age
from tests.support import PATIENCE
from tests.upkeep.busy import Busy
from tests.upkeep.kept import Kept


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def filled(tmp_path_factory: pytest.TempPathFactory) -> Kept:
    kept = Kept(tmp_path_factory.mktemp("kept") / "state")
    kept.state_dir.mkdir(mode=0o700)
    await kept.fill()
    return kept


@pytest.fixture
def kept(filled: Kept, tmp_path: Path) -> Kept:
    """One's own, to damage."""
    own = Kept(tmp_path / "state")
    shutil.copytree(filled.state_dir, own.state_dir)
    own.ids = filled.ids
    return own


def codes(report: VerifyReport) -> set[tuple[str, str]]:
    return {(finding.severity, finding.code) for finding in report.findings}


async def test_a_good_directory(kept: Kept) -> None:
    before = tree_of(kept.state_dir)
    report = await verify(kept.state_dir)
    assert (report.ok, report.findings) == (True, [])
    assert (report.subject, report.runs, report.collected) == ("directory", 3, 1)
    assert report.bytes > 1_500_000
    assert report.events > 10
    assert tree_of(kept.state_dir) == before


async def test_a_directory_in_use(state_dir: Path, marker: Marker, tmp_path: Path) -> None:
    """Runs start, write, are stopped and collected meanwhile: none of it is damage."""
    busy = Busy(tmp_path, marker)
    async with Supervisor.open(state_dir) as sup:
        for number in range(6):
            live = await busy.send(sup, f"live-{number}")
            await busy.send(sup, f"ended-{number}")
            assert (await verify(state_dir)).findings == []
            await sup.stop(live.id, grace=0)
            age(state_dir)
            looking = asyncio.create_task(verify(state_dir))
            await sup.gc(keep=2, apply=True)
            assert (await looking).findings == []


def damage_a_middle_segment(kept: Kept) -> None:
    segment = kept.segments()[0]
    flip(segment, segment.stat().st_size // 2)


def lose_a_segment(kept: Kept) -> None:
    kept.segments()[0].unlink()


def exchange_segments(kept: Kept) -> None:
    one, other = kept.segments()[:2]
    content = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(content)


def nul_the_receipt(kept: Kept) -> None:
    log = kept.log("small")
    log.write_bytes(log.read_bytes()[:-200] + bytes(200))


def put_another_log(kept: Kept) -> None:
    shutil.copy(kept.log("missing"), kept.log("small"))


def put_a_link(kept: Kept) -> None:
    log = kept.log("small")
    log.rename(log.with_suffix(".elsewhere"))
    log.symlink_to(log.with_suffix(".elsewhere"))


def forget_a_run(kept: Kept) -> None:
    tables = ("attempts", "run_labels", "feed", "resolutions", "runs")
    where = f"WHERE serial = (SELECT serial FROM runs WHERE run_id = '{kept.ids['small']}')"
    kept.sql(*(f"DELETE FROM {table} {where}" for table in tables))


def change(column: str, value: str) -> Callable[[Kept], None]:
    return lambda kept: kept.sql(f"UPDATE runs SET {column} = {value} WHERE run_id = '{kept.ids['small']}'")


def call_it_not_started(kept: Kept) -> None:
    kept.sql(
        "UPDATE runs SET state = 'not_started', reason = 'x', outcome = NULL, receipt = NULL "
        f"WHERE run_id = '{kept.ids['small']}'"
    )


def forget_a_guard(kept: Kept) -> None:
    with closing(sqlite3.connect(kept.state_dir / "journal.db")) as conn:
        conn.execute("DROP TRIGGER runs_words_fixed")
        conn.commit()


def damage_the_journal(kept: Kept) -> None:
    """Into the middle of its pages, not into its first."""
    path = kept.state_dir / "journal.db"
    with open(path, "r+b") as file:
        for page in range(2, path.stat().st_size // 4096, 2):
            file.seek(page * 4096)
            file.write(os.urandom(256))


def in_state(work: Callable[[Path], object]) -> Callable[[Kept], None]:
    return lambda kept: (work(kept.state_dir), None)[1]


DAMAGE: dict[str, tuple[Callable[[Kept], None], set[tuple[str, str]]]] = {
    "a bit of output": (
        damage_a_middle_segment, {("error", "log_damaged"), ("error", "events_lost")},
    ),
    "a segment is lost": (lose_a_segment, {("error", "events_lost")}),
    "segments are exchanged": (
        exchange_segments, {("error", "log_damaged"), ("error", "events_lost"), ("error", "header_differs")},
    ),
    "the receipt is NUL": (nul_the_receipt, {("error", "log_damaged"), ("warning", "receipt_missing")}),
    "a log is lost": (lambda kept: kept.log("small").unlink(), {("error", "log_missing")}),
    "a log is empty": (lambda kept: os.truncate(kept.log("small"), 0), {("error", "log_empty")}),
    "another run's log": (put_another_log, {("error", "log_foreign")}),
    "a link": (
        put_a_link, {("error", "log_not_regular"), ("error", "link"), ("warning", "stray_file")},
    ),
    "a log without a row": (forget_a_run, {("error", "log_without_row")}),
    "another request": (change("request_id", "'other'"), {("error", "header_differs")}),
    "another receipt": (
        change("receipt", "'{}'"), {("error", "receipt_differs"), ("error", "outcome_differs")},
    ),
    "another outcome": (change("outcome", "'{}'"), {("error", "outcome_differs")}),
    "another directory": (change("cwd", "'\"/elsewhere\"'"), {("error", "header_differs")}),
    "a text that is none": (change("digests", "replace(digests, ':', ';')"), {("error", "journal_corrupt")}),
    "a text with more behind it": (change("cwd", "'2' || cwd"), {("error", "journal_corrupt")}),
    "a text that is not UTF-8": (change("cwd", "CAST(x'22ff22' AS TEXT)"), {("error", "journal_corrupt")}),
    "a guard is gone": (forget_a_guard, {("error", "journal_damaged")}),
    "a move that a guard allows": (
        lambda kept: kept.sql("UPDATE state_moves SET new = 'unknowm' WHERE new = 'unknown'"),
        {("error", "journal_damaged")},
    ),
    "a collected run's digests": (
        lambda kept: kept.sql("UPDATE runs SET digests = replace(digests, 'argv', 'argw') WHERE serial = 1"),
        {("error", "tombstone_differs")},
    ),
    "a collected run's outcome": (
        lambda kept: kept.sql("UPDATE runs SET outcome = '{}' WHERE serial = 1"),
        {("error", "journal_corrupt")},
    ),
    "it never started": (call_it_not_started, {("error", "state_contradicted")}),
    "an attempt that never was": (
        change("attempt", "2"), {("error", "log_missing"), ("error", "journal_incomplete")},
    ),
    "rows of nobody": (
        lambda kept: kept.sql("INSERT INTO feed VALUES (9999, 1, 9999, 1, 'finished', 'finish', NULL)"),
        {("error", "journal_orphans")},
    ),
    "no journal": (in_state(lambda path: (path / "journal.db").unlink()), {("error", "journal_missing")}),
    "no journal but noise": (
        in_state(lambda path: (path / "journal.db").write_bytes(os.urandom(20_000))),
        {("error", "journal_corrupt")},
    ),
    "no key": (in_state(lambda path: (path / "key").unlink()), {("error", "key_unusable")}),
    "another key": (in_state(lambda path: (path / "key").write_bytes(bytes(32))), {("error", "key_differs")}),
    "a stray file": (
        in_state(lambda path: (path / "runs" / "notes").touch(0o600)), {("warning", "stray_file")},
    ),
    "open to others": (in_state(lambda path: (path / "runs").chmod(0o755)), {("error", "open_to_others")}),
    "a tombstone is damaged": (
        in_state(lambda path: flip(path / "runs" / "collected.log", 40)),
        {("warning", "tombstone_damaged"), ("warning", "tombstone_missing")},
    ),
    "the tombstones are lost": (
        in_state(lambda path: (path / "runs" / "collected.log").unlink()), {("warning", "tombstone_missing")},
    ),
    "a tombstone without a row": (
        lambda kept: kept.sql("DELETE FROM runs WHERE collected_ns IS NOT NULL",
                              "DELETE FROM attempts WHERE serial = 1", "DELETE FROM feed WHERE serial = 1"),
        {("error", "journal_behind")},
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", DAMAGE)
async def test_damage(kept: Kept, what: str) -> None:
    work, expected = DAMAGE[what]
    work(kept)
    before = tree_of(kept.state_dir)
    report = await verify(kept.state_dir)
    assert codes(report) == expected
    assert not report.ok
    assert all(finding.path and finding.problem and finding.hint for finding in report.findings)
    assert tree_of(kept.state_dir) == before


async def test_nothing_at_all_is_written(kept: Kept) -> None:
    """Not even what SQLite makes beside a journal to read it."""
    before = sorted(kept.state_dir.rglob("*"))
    assert not kept.state_dir.joinpath("journal.db-shm").exists()
    assert (await verify(kept.state_dir)).ok
    assert sorted(kept.state_dir.rglob("*")) == before


async def test_a_line_that_a_crash_cut_short_is_no_loss(kept: Kept) -> None:
    log = kept.state_dir / "runs" / "collected.log"
    log.write_bytes(log.read_bytes() + b"01234567 {")
    report = await verify(kept.state_dir)
    assert (report.ok, codes(report)) == (True, {("note", "tombstone_damaged")})


async def test_damaged_tombstones_are_written_again_as_the_hint_says(kept: Kept) -> None:
    log = kept.state_dir / "runs" / "collected.log"
    flip(log, 40)
    assert all("move the file away" in finding.hint for finding in (await verify(kept.state_dir)).findings)
    log.rename(log.with_name("aside"))
    async with Supervisor.open(kept.state_dir):
        pass
    log.with_name("aside").unlink()
    assert (await verify(kept.state_dir)).findings == []


@pytest.mark.parametrize(
    ("left", "hint"), [(SEGMENT_MAGIC + bytes(400), "nothing: "), (b"x" * 400, "move it")]
)
async def test_what_a_start_has_left_is_a_note(kept: Kept, left: bytes, hint: str) -> None:
    """Its hint is true: the next opening removes what nobody accepted, and no other file."""
    log = kept.log("small").with_name("zzzzzzzzzzzzzzzz.a1.log")
    log.touch(0o600)
    log.write_bytes(left)
    [found] = (await verify(kept.state_dir)).findings
    assert (found.severity, found.code) == ("note", "log_without_row")
    assert found.hint.startswith(hint)
    async with Supervisor.open(kept.state_dir):
        assert log.exists() is (hint == "move it")


@pytest.mark.parametrize("column", ["digests", "outcome", "limits"])
async def test_a_damaged_row_is_an_error_of_ours_for_every_reader(kept: Kept, column: str) -> None:
    change(column, "'{'")(kept)
    async with Observer.open(kept.state_dir) as seen:
        with pytest.raises(SupervisorError) as error:
            await seen.inspect(kept.ids["small"])
    assert error.value.code is ErrorCode.JOURNAL_CORRUPT


async def test_a_journal_with_damaged_pages(kept: Kept) -> None:
    """What can still be read of it is; what is found first depends on the page."""
    damage_the_journal(kept)
    found = codes(await verify(kept.state_dir))
    assert found & {("error", "journal_damaged"), ("error", "journal_corrupt")}


async def test_a_backup(kept: Kept, tmp_path: Path) -> None:
    dest = tmp_path / "copy"
    await backup(dest, state_dir=kept.state_dir)
    before = {path: path.read_bytes() for path in dest.rglob("*") if path.is_file()}
    report = await verify(dest)
    assert (report.subject, report.findings) == ("backup", [])
    assert {path: path.read_bytes() for path in dest.rglob("*") if path.is_file()} == before
    (dest / "key").write_bytes((dest / "key").read_bytes()[::-1])
    (dest / "runs" / "collected.log").unlink()
    (dest / "journal.db.old").touch(0o600)
    found = codes(await verify(dest))
    assert found == {
        ("error", "file_differs"), ("error", "file_added"), ("error", "key_differs"),
        ("warning", "stray_file"), ("warning", "tombstone_missing"),
    }  # fmt: skip
    for text in ("{}", "[" * 100_000, (dest / "backup.json").read_text().replace('"key"', '"../key"')):
        (dest / "backup.json").write_text(text)
        assert ("error", "manifest_damaged") in codes(await verify(dest))


async def test_a_backup_that_was_opened(kept: Kept, tmp_path: Path) -> None:
    dest = tmp_path / "copy"
    await backup(dest, state_dir=kept.state_dir)
    async with Supervisor.open(dest) as sup:
        await sup.wait((await sup.start(Command(argv=["true"]))).id, timeout=PATIENCE)
        await sup.reconcile()
    report = await verify(dest)
    assert (report.ok, codes(report)) == (True, {("note", "backup_in_use")})


def test_bundles(kept: Kept, tmp_path: Path) -> None:
    """By the command, as a person would."""
    cli, path = Cli(kept.state_dir), tmp_path / "run.zip"
    cli.ok("export", kept.ids["loud"], "-o", str(path))
    good = cli.ok("verify", "--json", str(path)).document
    assert (good["subject"], good["ok"], good["runs"], good["findings"]) == ("bundle", True, 1, [])
    member = next(one for one in zipfile.ZipFile(path).infolist() if one.filename.endswith(".log"))
    flip(path, member.header_offset + member.compress_size // 2)
    bad = cli("verify", "--json", str(path))
    assert bad.code == 1
    assert [finding["code"] for finding in bad.document["findings"]] == ["member_damaged"]
    path.write_bytes(b"no zip")
    assert cli("verify", str(path)).code == 2


def test_what_a_person_sees(kept: Kept) -> None:
    cli = Cli(kept.state_dir)
    assert "  ok  3 runs, " in cli.ok("verify").stdout
    kept.log("small").unlink()
    bad = cli("verify")
    assert (bad.code, bad.stderr) == (1, "")
    first, hint, last = bad.stdout.splitlines()
    assert first.startswith(f"error    {kept.log('loud').parent}")
    assert "there is no log" in first
    assert "backup" in hint
    assert "1 error, 0 warnings" in last


async def test_a_journal_of_before(state_dir: Path) -> None:
    """It is not migrated for being looked at."""
    async with Supervisor.open(state_dir):
        pass
    (state_dir / "journal.db").unlink()
    with closing(sqlite3.connect(state_dir / "journal.db", isolation_level=None)) as conn:
        conn.execute("PRAGMA journal_mode = WAL")
        migrate.migrate(conn, migrate.load()[:2], 1)
    (state_dir / "journal.db").chmod(0o600)
    assert (await verify(state_dir)).findings == []


async def test_nothing_to_look_at(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    for path in (tmp_path / "none", tmp_path / "other"):
        with pytest.raises(SupervisorError) as error:
            await verify(path)
        assert error.value.code is ErrorCode.STATE_DIR_REFUSED


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
async def test_what_cannot_be_read(kept: Kept) -> None:
    small = kept.log("small")
    kept.segments()[0].chmod(0)
    small.chmod(0)
    report = await verify(kept.state_dir)
    assert ("error", "log_unreadable") in codes(report)
    assert report.runs == 1
    small.parent.chmod(0)
    assert ("error", "unreadable") in codes(await verify(kept.state_dir))
    small.parent.chmod(0o700)


async def test_what_a_kill_left_half_made(kept: Kept) -> None:
    """It has names of ours, and harms nobody."""
    for name in ("key.0badcafe", "supervisor.owner.0badcafe", ".supervisor.sock.new"):
        (kept.state_dir / name).touch(mode=0o600)
    assert (await verify(kept.state_dir)).findings == []
