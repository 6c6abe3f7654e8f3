"""Bundles from strangers: whatever is wrong with one, it is refused by a typed error that says what."""

from __future__ import annotations

import hashlib
import io
import json
import os
import stat
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from durable_supervisor.bundle import archive, strict
from durable_supervisor.bundle.archive import Archive
from durable_supervisor.bundle.contents import Manifest, Member, parse_log_name
from durable_supervisor.bundle.reader import BundleReader
from durable_supervisor.bundle.writer import BundleWriter
from durable_supervisor.model.errors import ErrorCode, SupervisorError
from tests.bundle.views import RUN_ID, view_of

LOG = f"runs/0000/{RUN_ID}.a1.log"
Members = dict[str, bytes]
Maker = Callable[[Path], object]


def members() -> Members:
    return {"run.json": json.dumps(view_of().to_dict()).encode(), LOG: b"no log at all"}


def manifest_of(found: Members, **changes: Any) -> bytes:
    listed = {
        name: {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()} for name, data in found.items()
    }
    form = Manifest(
        version="0", run_id=RUN_ID, shard="0000", attempts=1, state="finished", open=False, head=0, members={}
    ).to_dict()
    return json.dumps({**form, "members": listed, **changes}).encode()


def bundle(path: Path, found: Members, manifest: bytes | None = None) -> Path:
    written = bytearray()
    writer = BundleWriter(written.extend)
    for name, data in found.items():
        writer.add(name, [data])
    writer.add("manifest.json", [manifest_of(found) if manifest is None else manifest])
    writer.finish()
    path.write_bytes(written)
    return path


async def read_all(path: Path) -> None:
    async with BundleReader(str(path)) as reader:
        await reader.inspect(RUN_ID)
        async for _ in reader.follow(RUN_ID):
            pass


async def refusal(path: Path) -> str:
    with pytest.raises(SupervisorError) as caught:
        await read_all(path)
    assert caught.value.code is ErrorCode.INVALID_REQUEST
    return caught.value.message


async def test_a_true_one_is_read(tmp_path: Path) -> None:
    async with BundleReader(str(bundle(tmp_path / "b", members()))) as reader:
        assert (await reader.inspect(RUN_ID[:4])).argv == ("make", "report")
        assert [view.id for view in (await reader.list()).runs] == [RUN_ID]
        assert (await reader.events(RUN_ID)).events == []
        with pytest.raises(SupervisorError) as caught:
            await reader.inspect("0000")
        assert caught.value.code is ErrorCode.UNKNOWN_RUN
        with pytest.raises(SupervisorError, match="can be read, nothing else"):
            await reader.stop(RUN_ID)


ODD_NAMES = [
    "../../etc/passwd", "/etc/passwd", "runs/../../x", "extra.txt", "RUN.JSON", "a\x1b[2Jb",
    f"runs/0000/{RUN_ID}.a2.log", f"runs/0001/{RUN_ID}.a1.log", f"runs/0000/{RUN_ID}.a01.log",
    f"runs/0000/{RUN_ID}.a1.seg/../../../x", f"runs/0000/{RUN_ID}.a1.seg/5.log", "runs/0000/zzzz.a1.log",
    f"runs/0000/{RUN_ID}.sock", f"runs\\0000\\{RUN_ID}.a1.log", f"runs/0000/{RUN_ID}.a1.log/",
]  # fmt: skip


@pytest.mark.parametrize("name", ODD_NAMES)
async def test_names_that_a_bundle_does_not_hold(name: str, tmp_path: Path) -> None:
    told = await refusal(bundle(tmp_path / "b", {**members(), name: b"x"}))
    assert "is no name that a bundle holds" in told
    assert "\x1b" not in told
    assert {path.name for path in tmp_path.iterdir()} == {"b"}


@given(st.text(max_size=40) | st.sampled_from(ODD_NAMES))
def test_only_the_names_that_we_make_are_logs(name: str) -> None:
    manifest = Manifest(
        version="0", run_id=RUN_ID, shard="0000", attempts=1, state="finished", open=False, head=0, members={}
    )
    assert parse_log_name(manifest, name) is None
    assert parse_log_name(manifest, LOG) == (1, (0, 0, 0))


def _wrong_digest(path: Path) -> None:
    found = members()
    bundle(path, {**found, LOG: b"no log at ALL"}, manifest_of(found))


def _wrong_document(path: Path) -> None:
    found = members()
    bundle(path, {**found, "run.json": found["run.json"].replace(b"make", b"MAKE")}, manifest_of(found))


def _wrong_size(path: Path) -> None:
    found = members()
    bundle(path, {**found, LOG: b"longer than it was said to be"}, manifest_of(found))


def _missing_member(path: Path) -> None:
    found = members()
    bundle(path, {"run.json": found["run.json"]}, manifest_of(found))


def _unlisted_member(path: Path) -> None:
    found = members()
    bundle(path, {**found, "receipt.json": b"{}"}, manifest_of(found))


def _manifest(**changes: Any) -> Maker:
    return lambda path: bundle(path, members(), manifest_of(members(), **changes))


def _manifest_bytes(data: bytes) -> Maker:
    return lambda path: bundle(path, members(), data)


def _run(data: bytes) -> Maker:
    return lambda path: bundle(path, {**members(), "run.json": data})


def _changed_run(**changes: Any) -> Maker:
    form = {**view_of().to_dict(), **changes}
    return _run(json.dumps(form).encode())


def _zip(write: Callable[[zipfile.ZipFile], None]) -> Maker:
    def make(path: Path) -> None:
        with zipfile.ZipFile(path, "w") as file:
            for name, data in members().items():
                file.writestr(name, data)
            file.writestr("manifest.json", manifest_of(members()))
            write(file)

    return make


def _twice(file: zipfile.ZipFile) -> None:
    with pytest.warns(UserWarning, match="Duplicate name"):
        file.writestr(LOG, b"another")


def _link(file: zipfile.ZipFile) -> None:
    info = zipfile.ZipInfo("report.html")
    info.external_attr = (stat.S_IFLNK | 0o777) << 16
    file.writestr(info, "/etc/passwd")


def _packed_oddly(file: zipfile.ZipFile) -> None:
    file.writestr("report.html", b"x", zipfile.ZIP_BZIP2)


def _cut(path: Path) -> None:
    data = bundle(path, members()).read_bytes()
    path.write_bytes(data[: len(data) // 2])


def _flipped(path: Path) -> None:
    """The bytes of the log's member themselves."""
    data = bytearray(bundle(path, members()).read_bytes())
    at = data.index(LOG.encode()) + len(LOG) + 24
    data[at] ^= 0xFF
    path.write_bytes(data)


def _other_format(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("holiday.jpg", b"x")


def _no_file(path: Path) -> None:
    path.mkdir()


def _fifo(path: Path) -> None:
    os.mkfifo(path)


WRONG: list[tuple[str, Maker, str]] = [
    ("digest", _wrong_digest, "is not what manifest.json says"),
    ("document", _wrong_document, "run.json is not what manifest.json says"),
    ("size", _wrong_size, "has another size"),
    ("missing", _missing_member, "is missing"),
    ("unlisted", _unlisted_member, "'receipt.json' is not in manifest.json"),
    ("newer", _manifest(format=2), "format 2 is newer"),
    ("other product", _manifest(product="x"), "manifest.json is not a bundle's"),
    ("run id", _manifest(run_id="../../../etc/pass"), "run_id is malformed"),
    ("shard", _manifest(shard="../x"), "shard is malformed"),
    ("attempts", _manifest(attempts=10**12), "attempts is not a number"),
    ("bool", _manifest(head=True), "head is not a number"),
    ("members", _manifest(members=[]), "lists no members"),
    ("member", _manifest(members={LOG: {"size": -1, "sha256": "0" * 64}}), "no size and digest"),
    ("list", _manifest_bytes(b"[]"), "is not a JSON object"),
    ("deep", _manifest_bytes(b"[" * 100_000), "is not JSON"),
    ("no json", _manifest_bytes(b"\xff"), "is not JSON"),
    ("run not json", _run(b"{"), "run.json is not JSON"),
    ("run empty", _run(b"{}"), "run.json does not say what it should"),
    ("another run", _changed_run(run_id="0" * 16), "run.json does not say what it should"),
    ("argv", _changed_run(argv=[1, 2]), "run.json does not say what it should"),
    ("labels", _changed_run(labels={"a": {}}), "run.json does not say what it should"),
    ("state", _changed_run(state="winning"), "run.json does not say what it should"),
    ("twice", _zip(_twice), "is there twice"),
    ("link", _zip(_link), "is not a plain file"),
    ("bzip2", _zip(_packed_oddly), "packed in an unknown way"),
    ("cut", _cut, "cut, or damaged"),
    ("flipped", _flipped, "cut, or damaged"),
    ("other zip", _other_format, "holds no manifest.json"),
    ("text", lambda path: path.write_text("hello"), "no zip file"),
    ("empty", lambda path: path.touch(), "no zip file"),
    ("none", lambda path: None, "No such file"),
    ("directory", _no_file, "cannot be opened"),
    ("fifo", _fifo, "it is not a file"),
]


@pytest.mark.parametrize(("make", "said"), [case[1:] for case in WRONG], ids=[case[0] for case in WRONG])
async def test_what_is_wrong_is_named(make: Maker, said: str, tmp_path: Path) -> None:
    make(tmp_path / "b")
    assert said in await refusal(tmp_path / "b")


async def test_a_document_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "MAX_DOCUMENT", 100_000)
    found = {**members(), "run.json": b" " * 200_000}  # packs to almost nothing
    assert "run.json is too large" in await refusal(bundle(tmp_path / "b", found))


async def test_a_document_of_many_values_is_not_read(tmp_path: Path) -> None:
    values = b"[" + b"[]," * (strict.MAX_VALUES // 2 + 1) + b"[]]"
    path = bundle(tmp_path / "b", {**members(), "run.json": values})
    assert path.stat().st_size < 100_000
    assert "run.json has too many values" in await refusal(path)


async def test_a_member_that_lies_about_its_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Manifest and zip agree on 4 GiB: nothing is left of the try, whether there was room for it or not."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    huge = 0xFFFFFFF0
    form = json.loads(manifest_of(members()))
    form["members"][LOG]["size"] = huge
    path = bundle(tmp_path / "b", members(), json.dumps(form).encode())
    data = bytearray(path.read_bytes())
    size_field = data.rindex(LOG.encode()) - 46 + 24  # in the directory's entry, before its name
    data[size_field : size_field + 4] = huge.to_bytes(4, "little")
    path.write_bytes(data)
    with pytest.raises(SupervisorError) as caught:
        await read_all(path)
    assert caught.value.code in (ErrorCode.INVALID_REQUEST, ErrorCode.NO_SPACE)
    assert {entry.name for entry in tmp_path.iterdir()} == {"b"}


async def test_a_bomb_is_held_to_what_it_says(tmp_path: Path) -> None:
    """A member that packs a thousandfold, said to be small, is refused before it is unpacked."""
    form = json.loads(manifest_of({**members(), LOG: b"\0" * 100}))
    path = bundle(tmp_path / "b", {**members(), LOG: b"\0" * (32 << 20)}, json.dumps(form).encode())
    assert path.stat().st_size < 100_000
    assert "has another size" in await refusal(path)


async def test_a_log_beyond_the_room_there_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("durable_supervisor.bundle.unpack.FREE_BYTES", 1 << 62)
    with pytest.raises(SupervisorError) as caught:
        await read_all(bundle(tmp_path / "b", members()))
    assert caught.value.code is ErrorCode.NO_SPACE


@settings(max_examples=150)
@given(st.data())
def test_no_damage_gets_another_answer_than_a_refusal(draw: st.DataObject) -> None:
    """Any bytes changed, cut or added: the same content as before, or a typed error."""
    written = bytearray()
    writer = BundleWriter(written.extend)
    for name, content in members().items():
        writer.add(name, [content])
    writer.add("manifest.json", [manifest_of(members())])
    writer.finish()
    for at, value in draw.draw(
        st.lists(st.tuples(st.integers(0, len(written) - 1), st.integers(0, 255)), min_size=1, max_size=5)
    ):
        written[at] = value
    del written[draw.draw(st.integers(0, len(written))) or len(written) :]
    path = Path(f"/proc/self/fd/{_held(bytes(written))}")
    try:
        with Archive(str(path)) as opened:
            for name in (*opened.manifest.members,):
                b"".join(opened.chunks(name))
            assert opened.document("run.json") == json.loads(members()["run.json"])
    except SupervisorError as error:
        assert error.code is ErrorCode.INVALID_REQUEST  # noqa: PT017
    finally:
        os.close(int(path.name))


def _held(data: bytes) -> int:
    fd = os.memfd_create("bundle")
    os.write(fd, data)
    return fd


def test_the_writer_makes_the_same_bytes_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    def made() -> bytes:
        written = bytearray()
        writer = BundleWriter(written.extend)
        writer.add("a", [b"x" * 5000, b"y"])
        writer.finish()
        assert writer.members == {"a": Member(5001, hashlib.sha256(b"x" * 5000 + b"y").hexdigest())}
        return bytes(written)

    first = made()
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    os.umask(os.umask(0o077))
    assert made() == first
    info = zipfile.ZipFile(io.BytesIO(first)).getinfo("a")
    assert (info.date_time, info.external_attr >> 16, info.create_system) == ((1980, 1, 1, 0, 0, 0), 0o600, 3)
