"""Capture of a stream, beside a plain pipe -> file that syncs as often."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path

from durable_supervisor import Supervisor

from ..baselines import Baselines
from ..child import REPOSITORY, answer
from ..model import Context, Row
from ..product import run_to_end, supervisor, warm_up
from ..stats import median

TITLE = "output: 64 KiB writes, 80-byte lines, with secrets; the longest stall"
ROWS = ("output.blocks", "output.secrets", "output.lines", "output.stall")
PIPE_TO_FILE = REPOSITORY / "bench" / "programs" / "pipe_to_file.py"
BLOCK = 64 * 1024
LINE = 80
SECRETS = 20


@dataclass(slots=True)
class Samples:
    """MB/s of each round, and the program's longest write in ms."""

    ours: list[float] = field(default_factory=list)
    plain: list[float] = field(default_factory=list)
    stalls: list[float] = field(default_factory=list)
    plain_stalls: list[float] = field(default_factory=list)


async def measure(ctx: Context) -> list[Row]:
    blocks = ctx.size(256, 32) << 20
    lines = ctx.size(32, 8) << 20
    rounds = ctx.size(5, 2)
    with ctx.directory("output") as directory, Baselines(directory) as base:
        async with supervisor(directory) as sup:
            await warm_up(sup)
            tool = ctx.tool("writer")
            plain = await _rounds(sup, base, directory, [tool, "blocks", str(BLOCK)], blocks, rounds, 0)
            secret = await _rounds(
                sup, base, directory, [tool, "blocks", str(BLOCK)], blocks, rounds, SECRETS
            )
            short = await _rounds(sup, base, directory, [tool, "blocks", str(LINE)], lines, rounds, 0)
        numbers = base.numbers()
        stall = Row(
            key="output.stall",
            value=max(plain.stalls),
            measured={"longest_ms": max(plain.stalls), "median_of_rounds_ms": median(plain.stalls)},
            baseline={"pipe_to_file_longest_ms": max(plain.plain_stalls)},
            note="longest single write(2) of 64 KiB over all rounds",
        )
        return [
            _row("output.blocks", plain, blocks, numbers),
            _row("output.secrets", secret, blocks, numbers),
            _row("output.lines", short, lines, numbers),
            stall,
        ]


async def _rounds(
    sup: Supervisor,
    base: Baselines,
    directory: Path,
    writer: list[str],
    total: int,
    rounds: int,
    secrets: int,
) -> Samples:
    """Plain, ours, plain, ours, …: the machine drifts."""
    samples = Samples()
    words = [f"bench-secret-{number:02d}-0123456789" for number in range(secrets)]
    report, copy = directory / "report", directory / "copy"
    argv = [*writer, str(total // int(writer[-1])), str(report), str(secrets)]
    for _ in range(rounds):
        base.sample(10)
        plain = answer([sys.executable, "-I", "-S", str(PIPE_TO_FILE), str(copy), *argv])
        samples.plain.append(plain["bytes"] / plain["seconds"] / 1e6)
        samples.plain_stalls.append(_longest_ms(report))
        copy.unlink()
        _, seconds = await run_to_end(sup, argv, words)
        samples.ours.append(total / seconds / 1e6)
        samples.stalls.append(_longest_ms(report))
    return samples


def _longest_ms(report: Path) -> float:
    return int(report.read_text().split()[0]) / 1e6


def _row(key: str, samples: Samples, total: int, base: dict[str, float]) -> Row:
    ours, plain = median(samples.ours), median(samples.plain)
    return Row(
        key=key,
        # Of pairs, each taken within a second or so, not of medians over the whole time.
        value=median([mine / other for mine, other in zip(samples.ours, samples.plain, strict=True)]),
        measured={"mb_per_s": round(ours, 1), "n": len(samples.ours), "mb_each": round(total / 1e6, 1)},
        baseline={"pipe_to_file_mb_per_s": round(plain, 1), **base},
    )
