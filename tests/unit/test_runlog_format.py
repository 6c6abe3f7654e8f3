"""The bytes: what is written is read, and nothing else is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from durable_supervisor.runlog import format as form
from durable_supervisor.runlog.paths import (
    FIRST,
    RunPaths,
    find_run,
    list_runs,
    list_shards,
    parse_segment_name,
    segment_name,
    shard_of,
)
from tests.unit.runlog_helpers import header_of, open_writer, paths_in


def test_header_comes_back(tmp_path: Path) -> None:
    header = header_of(paths_in(tmp_path))
    data = header.encode()
    decoded, length = form.decode_header(data + b"rest")
    assert decoded == header
    assert length == len(data) == form.header_length(data)
    assert decoded.detail["argv"] == ["printf", "\udcff"]


def test_every_flipped_bit_of_a_header_is_seen(tmp_path: Path) -> None:
    data = header_of(paths_in(tmp_path)).encode()
    for index in range(len(data) * 8):
        damaged = bytearray(data)
        damaged[index // 8] ^= 1 << (index % 8)
        with pytest.raises(form.HeaderError):
            form.decode_header(bytes(damaged))
    for cut in range(len(data)):
        with pytest.raises(form.HeaderError):
            form.decode_header(data[:cut])


def test_a_newer_format_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(form, "FORMAT", 2)
    data = header_of(paths_in(tmp_path)).encode()
    monkeypatch.undo()
    with pytest.raises(form.HeaderError, match="newer"):
        form.decode_header(data)


def test_a_record_is_good_at_its_own_place_only() -> None:
    salt = form.salt_of("run1", 1, 0)
    head = form.encode_record(salt, 100, form.OUTPUT, 1, 5, 6, 7, b'{"offset":0}', b"data")
    fields = form.decode_record_head(salt, 100, b"??" + head, 2)
    assert fields is not None
    assert fields[:7] == (form.OUTPUT, 1, 12, 4, 5, 6, 7)
    assert form.body_holds(salt, fields[7], b'{"offset":0}', b"data")
    assert not form.body_holds(salt, fields[7], b'{"offset":0}', b"dat0")
    for other in (0, 99, 101, 2**33 + 100):
        assert form.decode_record_head(salt, other, head, 0) is None
    for stranger in (form.salt_of("run2", 1, 0), form.salt_of("run1", 2, 0), form.salt_of("run1", 1, 9)):
        assert form.decode_record_head(stranger, 100, head, 0) is None
    for index in range(form.RECORD_SIZE * 8):
        damaged = bytearray(head)
        damaged[index // 8] ^= 1 << (index % 8)
        assert form.decode_record_head(salt, 100, bytes(damaged), 0) is None


def test_json_is_plain(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="JSON"):
        form.encode_json({"x": float("nan")})
    assert form.decode_json(b"[]") is None
    assert form.decode_json(b"\xff") is None
    assert form.decode_json(b"[" * 100_000) is None
    assert json.loads(form.encode_json({"a": "€"})) == {"a": "€"}


MANY = form.MAX_VALUES


@pytest.mark.parametrize(
    "argument",
    ["," * MANY, '"' + "," * MANY, "\\" + "," * MANY, '\\",' * MANY, ',"' * MANY],
    ids=lambda text: text[:4],
)
def test_an_argument_may_have_as_many_commas_as_the_kernel_takes(argument: str) -> None:
    assert form.decode_json(form.encode_json({"argv": ["true", argument]})) == {"argv": ["true", argument]}


@pytest.mark.parametrize("value", [b"[]", b"0", b'""', b'","', b'"\\\\"', b'"\\",\\""', b'{",":0}'])
def test_a_record_of_more_values_than_anybody_writes_is_none(
    value: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(form, "MAX_VALUES", 1000)
    assert form.decode_json(b'{"in":[' + b",".join([value] * 1000) + b"]}") is not None
    assert form.decode_json(b'{"in":[' + b",".join([value] * 1001) + b"]}") is None


def test_segment_names_are_strict() -> None:
    for key in ((1, 0, 0), (10**15, 0, 0), (7, 90, 0), (7, 90, 3)):
        assert parse_segment_name(segment_name(key)) == key
    for name in (
        "x", "1.log", "0000000000000001.log.tmp", "0000000000000001-.log", "000000000000000\u0661.log",
        "0000000000000001-0000000000000002.log", "0000000000000001.log.g1", "-000000000000001.log", ".log",
    ):  # fmt: skip
        assert parse_segment_name(name) is None, name


def test_paths(tmp_path: Path) -> None:
    assert shard_of(0) == "0000"
    assert shard_of(255) == "0000"
    assert shard_of(256) == "0001"
    paths = RunPaths("/s/runs", "0001", "abc")
    assert paths.log(2) == paths.segment_file(2, FIRST) == "/s/runs/0001/abc.a2.log"
    assert paths.segment(1, 5) == "/s/runs/0001/abc.a1.seg/0000000000000005.log"
    assert paths.socket == "/s/runs/0001/abc.sock"
    for bad in ("", "../x", "a/b", "A", "a\n"):
        with pytest.raises(ValueError, match="run id"):
            RunPaths("/s", "0000", bad)


def test_finding_runs_without_a_journal(tmp_path: Path) -> None:
    assert find_run(str(tmp_path / "none"), "abc") is None
    assert list_runs(str(tmp_path), "0000") == {}
    for shard, run_id, attempt in (("0000", "abc", 1), ("0000", "abc", 2), ("10000", "def", 1)):
        open_writer(RunPaths(str(tmp_path), shard, run_id), attempt=attempt).close()
    (tmp_path / "0000" / "notes.txt").write_text("x")
    (tmp_path / "lost+found").mkdir()
    assert list_shards(str(tmp_path)) == ["0000", "10000"]
    assert list_runs(str(tmp_path), "0000") == {"abc": 2}
    found = find_run(str(tmp_path), "def")
    assert found is not None
    assert found.shard == "10000"
    assert find_run(str(tmp_path), "../x") is None
