"""The results as Markdown for people and JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from .model import PeerResult, Row
from .targets import TARGETS

SCHEMA = "durable-supervisor.bench.v1"
_MISSING = "-"


@dataclass(slots=True, kw_only=True)
class Report:
    """All of one sitting.  ``secrets``: texts (paths, the host's name) to keep out, with what to write."""

    machine: Mapping[str, object]
    quick: bool
    load_before: float = 0.0
    load_after: float = 0.0
    rows: list[Row] = field(default_factory=list)
    peers: list[PeerResult] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    hidden: Mapping[str, str] = field(default_factory=dict)

    def to_dict(self) -> dict[str, object]:
        """The JSON document."""
        return {
            "schema": SCHEMA,
            "machine": dict(self.machine),
            "quick": self.quick,
            "load": {"before": self.load_before, "after": self.load_after},
            "rows": [_row(row) for row in self.rows],
            "peers": [asdict(peer) for peer in self.peers],
            "against_peers": against_peers(self.rows, self.peers),
            "seconds": self.seconds,
        }

    def write(self, directory: Path, name: str) -> tuple[Path, Path]:
        """Write ``NAME.md`` and ``NAME.json``; their paths."""
        directory.mkdir(parents=True, exist_ok=True)
        markdown, document = directory / f"{name}.md", directory / f"{name}.json"
        text = json.dumps(self.to_dict(), indent=2, ensure_ascii=False) + "\n"
        document.write_text(self._hide(text), encoding="utf-8")
        markdown.write_text(self._hide(self.markdown()), encoding="utf-8")
        return markdown, document

    def markdown(self) -> str:
        quick = " (quick: small samples, small sizes)" if self.quick else ""
        parts = [f"# Benchmark{quick}\n", self._machine(), "## Figures\n", _figures(self.rows)]
        if self.peers:
            parts += ["## Peers on the same work\n", _peers(self.peers)]
            compared = against_peers(self.rows, self.peers)
            if compared:
                parts += ["## Against the peers\n", _compared(compared)]
        left_out = [f"- {row.key}: {row.why_not}" for row in self.rows if row.value is None]
        left_out += [f"- {peer.name}: {peer.skipped}" for peer in self.peers if peer.skipped]
        if left_out:
            parts += ["## Not measured\n", "\n".join(left_out) + "\n"]
        parts += ["## Behind the figures\n", _details(self.rows)]
        return "\n".join(parts)

    def _machine(self) -> str:
        facts = [f"- {name.replace('_', ' ')}: {value}" for name, value in self.machine.items()]
        facts.append(f"- load before and after: {self.load_before}, {self.load_after}")
        return "\n".join(facts) + "\n"

    def _hide(self, text: str) -> str:
        for secret, word in sorted(self.hidden.items(), key=lambda item: -len(item[0])):
            text = text.replace(secret, word)
        return text


def verdict(row: Row) -> str:
    """``goal``, ``must``, ``short`` (of the must), ``told`` (there is no bound), or ``not measured``."""
    if row.value is None:
        return "not measured"
    target = TARGETS[row.key]
    if target.must is None and target.goal is None:
        return "told"
    if target.meets(row.value, target.goal):
        return "goal"
    return "must" if target.meets(row.value, target.must) else "short"


# Peers, by the figure of ours that is held against theirs: (our row, our figure, theirs, less is better).
_COMPARED = (
    ("receipt", "p50_ms", "exit_known_ms", True, ("conmon",)),
    (
        "throughput",
        "runs_per_s",
        "runs_per_s",
        False,
        ("task-spooler", "nq", "supervisord", "huey", "conmon"),
    ),
)


def against_peers(rows: Iterable[Row], peers: Iterable[PeerResult]) -> list[dict[str, object]]:
    """``{"what", "ours", "peer", "theirs", "ahead"}`` for each pair that was measured."""
    by_key = {row.key: row for row in rows}
    by_name = {peer.name: peer for peer in peers}
    found: list[dict[str, object]] = []
    for key, ours, theirs, less, names in _COMPARED:
        row = by_key.get(key)
        mine = None if row is None else row.measured.get(ours)
        for name in names:
            peer = by_name.get(name)
            other = None if peer is None else peer.figures.get(theirs)
            if mine is None or other is None:
                continue
            ahead = mine < other if less else mine > other
            found.append(
                {"what": f"{key}, {ours}", "ours": mine, "peer": name, "theirs": other, "ahead": ahead}
            )
    return found


def _row(row: Row) -> dict[str, object]:
    target = TARGETS[row.key]
    return {
        "key": row.key,
        "title": target.title,
        "value": None if row.value is None else round(row.value, 4),
        "unit": target.unit,
        "must": target.must,
        "goal": target.goal,
        "bound": "most" if target.most else "least",
        "verdict": verdict(row),
        "measured": dict(row.measured),
        "baseline": dict(row.baseline),
        "note": row.note,
        "why_not": row.why_not,
    }


def _figures(rows: Sequence[Row]) -> str:
    lines = []
    for row in rows:
        target = TARGETS[row.key]
        sign = "<=" if target.most else ">="
        bounds = [_MISSING if bound is None else f"{sign} {bound:g}" for bound in (target.must, target.goal)]
        value = _MISSING if row.value is None else f"{_short(row.value)} {target.unit}"
        lines.append([target.title, value, *bounds, verdict(row), row.note or row.why_not])
    return _table(["figure", "measured", "must", "goal", "meets", "note"], lines)


def _details(rows: Sequence[Row]) -> str:
    lines = [
        [row.key, _numbers(row.measured), _numbers(row.baseline)] for row in rows if row.value is not None
    ]
    return _table(["row", "measured", "baselines around it"], lines)


def _peers(peers: Sequence[PeerResult]) -> str:
    columns = {
        "acked_ms": "acked, ms p50",
        "exit_known_ms": "exit known, ms p50",
        "exit_known_p99_ms": "p99",
        "runs_per_s": "runs/s, 16 at once",
        "mb_per_s": "MB/s",
        "idle_mb": "idle job, MB PSS",
    }
    lines = []
    for peer in peers:
        if peer.skipped:
            continue
        figures = [_short(peer.figures[key]) if key in peer.figures else _MISSING for key in columns]
        base = f"{_short(peer.baseline.get('F_ms', 0))} / {_short(peer.baseline.get('S_ms', 0))}"
        name = f"{peer.name} {peer.version}".strip()
        lines.append([name, *figures, base, peer.durability, peer.note])
    return _table(["peer", *columns.values(), "F / S, ms", "durable", "note"], lines)


def _compared(found: Sequence[Mapping[str, object]]) -> str:
    lines = [
        [
            str(one["what"]),
            _any(one["ours"]),
            str(one["peer"]),
            _any(one["theirs"]),
            "yes" if one["ahead"] else "no",
        ]
        for one in found
    ]
    return _table(["what", "ours", "peer", "theirs", "ahead"], lines)


def _table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    rows = [head, ["---"] * len(head), *lines]
    return (
        "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows) + "\n"
    )


def _numbers(numbers: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {_short(value)}" for name, value in numbers.items()) or _MISSING


def _any(value: object) -> str:
    return _short(value) if isinstance(value, int | float) else str(value)


def _short(value: float) -> str:
    """Three digits that matter; whole numbers and large ones whole."""
    if value == int(value) or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"
