"""The benchmark works and reports.  What it measures is never asserted."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from bench import figures, peers
from bench.model import PeerResult, Row
from bench.report import Report, against_peers, verdict
from bench.stats import median, p99
from bench.targets import TARGETS

REPOSITORY = Path(__file__).resolve().parents[2]


def run_bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(REPOSITORY), str(REPOSITORY / "src")])}
    argv = [sys.executable, "-m", "bench", *arguments]
    return subprocess.run(argv, env=env, capture_output=True, text=True, timeout=100, check=True)


def test_list_names_every_figure_and_peer() -> None:
    lines = run_bench("--list").stdout.splitlines()
    assert [line.split()[0] for line in lines] == [*figures.NAMES, *peers.NAMES]


def test_every_row_of_every_figure_has_a_target() -> None:
    rows = [key for name in figures.NAMES for key in figures.load(name).ROWS]
    assert sorted(rows) == sorted(TARGETS)


def test_a_quick_run_of_one_figure_ends_with_valid_json(tmp_path: Path) -> None:
    run_bench(
        "--quick", "--peers", "none", "--only", "start", "--no-install",
        "--work", str(tmp_path / "work"), "--out", str(tmp_path / "out"),
    )  # fmt: skip
    text = (tmp_path / "out" / "partial.json").read_text()
    document: dict[str, Any] = json.loads(text)
    assert document["schema"] == "durable-supervisor.bench.v1"
    assert [row["key"] for row in document["rows"]] == ["start.acked", "start.released", "start.released_p99"]
    assert all(row["value"] > 0 and row["baseline"]["F_ms"] > 0 for row in document["rows"])
    assert str(tmp_path) not in text
    assert "| durable start" in (tmp_path / "out" / "partial.md").read_text()
    assert list((tmp_path / "work").iterdir()) == []


def test_the_report_says_what_was_met_and_what_was_not_measured(tmp_path: Path) -> None:
    rows = [
        Row(key="throughput", value=0.3, measured={"runs_per_s": 500.0}),
        Row(key="start.acked", value=2.5),
        Row(key="receipt", value=9.0, measured={"p50_ms": 3.0}),
        Row(key="fsyncs", value=None, why_not="strace is not installed in /secret/place"),
    ]
    assert [verdict(row) for row in rows] == ["goal", "must", "short", "not measured"]
    found = [
        PeerResult(name="conmon", figures={"exit_known_ms": 4.0, "runs_per_s": 600.0}),
        PeerResult(name="pueue", skipped="pueue is not installed"),
    ]
    assert [one["ahead"] for one in against_peers(rows, found)] == [True, False]
    report = Report(
        machine={"cores": 2}, quick=True, rows=rows, peers=found, hidden={"/secret/place": "WORK"}
    )
    markdown, document = report.write(tmp_path, "some")
    assert "- fsyncs: strace is not installed in WORK" in markdown.read_text()
    assert "- pueue: pueue is not installed" in markdown.read_text()
    assert json.loads(document.read_text())["rows"][3]["why_not"].endswith("in WORK")


def test_percentiles() -> None:
    samples = [float(number) for number in range(1, 201)]
    assert (median(samples), p99(samples), p99([1.0, 5.0])) == (100.5, 198.0, 5.0)
