"""Bundles of strangers whose log holds by every checksum: no word in it acts on who reads it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from durable_supervisor import ErrorCode, Supervisor
from durable_supervisor.bundle.reader import BundleReader
from durable_supervisor.model.events import ALL_KINDS, Kind
from tests.cli.helpers import Cli
from tests.cli.terminals import Terminal, finish
from tests.contract.hosts import refused
from tests.imports.bundles import imported
from tests.imports.conftest import Theirs
from tests.imports.hostile import HOSTILE, Made, event, output, says, with_records


def nested(depth: int) -> bytes:
    return b'{"in":' * depth + b"1" + b"}" * depth


# No reader of ours could print these and no writer could write them again.
NO_RECORDS: dict[str, Made] = {
    "a kind that acts on a terminal": event(HOSTILE, {}),
    "a kind that ends a message of a stream": event("x\nid: 99", {}),
    "a kind beyond ASCII": event("r\u00fcn", {}),
    "a kind without end": event("x" * 2_000_000, {}),
    "no kind": event("", {}),
    "output that is an event": event(Kind.OUTPUT, {"stream": HOSTILE, "offset": "x"}),
    "a number beyond all": says(b'{"load":1e999}'),
    "no number": says(b'{"load":NaN}'),
    "a number of 5,000 digits": says(b'{"load":' + b"9" * 5000 + b"}"),
    "nested as deep as json goes": says(nested(900)),
    "nested deeper than we write": says(nested(100)),
    "lists without end": says(b'{"in":[' + b"[]," * 2_000_000 + b"[]]}"),
    "lists in lists": says(b'{"in":' + b"[" * 200 + b"]" * 200 + b"}"),
}


@pytest.mark.parametrize("made", NO_RECORDS.values(), ids=NO_RECORDS)
async def test_what_is_no_record_of_ours(made: Made, state_dir: Path, theirs: Theirs, tmp_path: Path) -> None:
    """Not imported; who reads the bundle itself is told that something is missing, and sees the rest."""
    file = with_records(theirs, tmp_path / "b", [made])
    async with Supervisor.open(state_dir) as sup:
        async with refused(ErrorCode.INVALID_REQUEST):
            await sup.import_(file)
        assert imported(state_dir) == []
    async with BundleReader(str(file)) as reader:
        page = await reader.events(theirs.view.id)
    kinds = [one.kind for one in page.events]
    assert kinds[-2:] == [Kind.OUTPUT_DROPPED, Kind.RUN_FINISHED]
    assert set(kinds) <= ALL_KINDS


VALUES: tuple[object, ...] = (
    None, True, -1, 10**400, 1e308, HOSTILE, [HOSTILE], {"a": HOSTILE}, [], {}, [[["x"]]], "9" * 1000,
)  # fmt: skip
FIELDS = (
    "action", "argv", "attempt", "bytes", "canonical", "code", "columns", "duration", "enforcement", "errno",
    "error", "evidence", "exec_failed", "first_seq", "grace", "id", "identity", "name", "op", "outcome",
    "path", "pid", "pids", "reason", "receipt", "requested", "result", "rows", "signal", "status", "step",
    "stop", "stream", "survivors", "text",
)  # fmt: skip


def any_words() -> list[Made]:
    """Every kind of event, with every kind of value in every field that somebody looks at."""
    kinds = sorted(ALL_KINDS - {Kind.OUTPUT, Kind.OUTPUT_DROPPED, Kind.RUN_FINISHED, HOSTILE})
    made = [
        event(kind, {field: VALUES[(at + turn) % len(VALUES)] for at, field in enumerate(FIELDS)})
        for kind in (*kinds, "run.of_a_later_version")
        for turn in range(len(VALUES))
    ]
    inner = dict.fromkeys(FIELDS, HOSTILE)
    made += [event(kind, {"identity": inner, "outcome": inner, HOSTILE: HOSTILE}) for kind in kinds]
    return made


ODD = [
    event("run.warning", {}, elapsed_ns=(1 << 63)),
    event("run.warning", {}, elapsed_ns=0),
    output(b"late\n", b"9" * 5000),
    output(HOSTILE.encode("utf-8", "surrogatepass") + bytes(range(256)), b"-5"),
    event(
        Kind.OUTPUT_DROPPED, {"first_seq": HOSTILE, "bytes": 10**400, "stream": HOSTILE, "reason": [HOSTILE]}
    ),
    says(b'{"twice":1,"twice":2}'),
]
BEHIND = [
    event(Kind.RUN_FINISHED, {"duration": 10**400, "outcome": {"kind": HOSTILE, "signal": 10**400}}),
    event(Kind.RUN_UNKNOWN, {"reason": HOSTILE}),
]
SHOWN = (
    ["list"], ["inspect", "RUN"], ["events", "RUN"], ["events", "RUN", "--follow"], ["logs", "RUN"],
    ["attach", "RUN"], ["verify"],
)  # fmt: skip
COLOURS = re.compile(r"\x1b\[[0-9;]*m")
CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]")


def test_what_is_one_by_its_form_alone(cli: Cli, terminal: Terminal, theirs: Theirs, tmp_path: Path) -> None:
    """It is imported; every verb shows it, and nothing of it gets at a terminal, a page or a script."""
    file = with_records(theirs, tmp_path / "b", [*any_words(), *ODD], BEHIND)
    run = theirs.view.id
    assert "imported" in cli.ok("import", str(file)).stdout
    for words in SHOWN:
        seen, code = finish(terminal(*(run if word == "RUN" else word for word in words), LANG="C.UTF-8"))
        plain = COLOURS.sub("", seen).replace("\r\n", "\n")
        assert code in (0, 1, 3), (words, seen[-2000:])
        assert CONTROLS.search(plain) is None, (words, CONTROLS.search(plain))
        assert "INTERNAL" not in plain
    for line in cli.ok("events", run, "--json").stdout.splitlines():
        json.loads(line, parse_constant=lambda word: pytest.fail(word))
    page = tmp_path / "report.html"
    cli.ok("report", run, "-o", str(page))
    assert "<script>alert" not in page.read_text()
    copy = tmp_path / "copy.zip"
    cli.ok("export", run, "-o", str(copy))
    assert copy.read_bytes() == file.read_bytes()


def test_megabytes_where_a_word_should_stand(cli: Cli, theirs: Theirs, tmp_path: Path) -> None:
    """A page is no larger for them."""
    long = "x" * 1_000_000
    words = [event(Kind.CONTROL_RECEIVED, {"op": long}), event(Kind.OUTPUT_DROPPED, {"reason": long})]
    file = with_records(theirs, tmp_path / "b", [*words * 5, event(Kind.RUN_STOPPING, {"reason": long})])
    page = tmp_path / "report.html"
    cli.ok("report", str(file), "-o", str(page))
    assert page.stat().st_size < 200_000
