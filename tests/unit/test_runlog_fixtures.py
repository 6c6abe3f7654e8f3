"""Logs of every released format stay readable for ever.

``python -m tests.unit.test_runlog_fixtures`` writes the current format's fixture; an
existing one is never written anew.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from durable_supervisor.runlog.format import FORMAT
from durable_supervisor.runlog.paths import RunPaths
from durable_supervisor.runlog.reader import LogReader
from tests.unit.runlog_helpers import BOOT, begin, end, open_writer

FIXTURES = Path(__file__).parents[1] / "fixtures" / "runlog"
FORMATS = sorted(FIXTURES.glob("format-*"))


def contents(directory: Path) -> dict[str, object]:
    reader = LogReader(RunPaths(str(directory), "0000", "run1"))
    evidence = reader.evidence(boot_id=BOOT, deep=True)
    page = reader.page()
    return {
        "events": [event.to_dict() for event in page.events],
        "head": page.head,
        "end": page.end,
        "status": evidence.status,
        "damage": evidence.damage,
        "receipt": evidence.receipt,
        "header": None if evidence.header is None else evidence.header.detail,
    }


@pytest.mark.parametrize("directory", FORMATS, ids=lambda path: path.name)
def test_a_released_format_is_read_as_ever(directory: Path) -> None:
    assert contents(directory) == json.loads((directory / "contents.json").read_text())


def test_the_current_format_has_a_fixture() -> None:
    assert (FIXTURES / f"format-{FORMAT}").is_dir()


def _write() -> None:
    directory = FIXTURES / f"format-{FORMAT}"
    directory.mkdir(parents=True)
    writer = open_writer(RunPaths(str(directory), "0000", "run1"), cap=8 * 1024, stderr_cap=64 * 1024)
    begin(writer)
    for index in range(60):
        writer.append_output("stdout", b"line %04d\n" % index * 40)
        if index % 10 == 0:
            writer.append_output("stderr", bytes(range(256)))
            writer.sync()
    end(writer)
    (directory / "contents.json").write_text(json.dumps(contents(directory), indent=1) + "\n")


if __name__ == "__main__":
    _write()
