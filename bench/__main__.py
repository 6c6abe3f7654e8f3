"""``python -m bench``: see bench/README.md."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

from . import figures, install, peers, tools
from .child import REPOSITORY
from .model import Context
from .runner import run, say

RESULTS = REPOSITORY / "bench" / "results"


def main(argv: list[str] | None = None) -> int:
    options = _options(argv)
    if options.list:
        for name in figures.NAMES:
            sys.stdout.write(f"{name:<12} {figures.load(name).TITLE}\n")
        for name in peers.NAMES:
            sys.stdout.write(f"{name:<22} peer\n")
        return 0
    chosen = _chosen(options.only, options.peers)
    work = options.work or _default_work()
    work.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="dsup-bench-", dir=work, ignore_cleanup_errors=True) as made:
        ctx = Context(work=Path(made), quick=options.quick)
        if not options.no_install:
            install.system(say, chosen[1])
            ctx.venv = install.environment(say, chosen[1])
        ctx.tools = tools.compile_all(Path(made) / "tools")
        report = run(ctx, *chosen)
    whole = not (options.quick or options.only or options.peers)
    written = report.write(options.out or RESULTS, "bench" if whole else "partial")
    say("wrote " + ", ".join(os.path.relpath(path) for path in written))
    return 0


def _options(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measure; see bench/README.md.")
    parser.add_argument("--list", action="store_true", help="name all figures and peers, and leave")
    parser.add_argument(
        "--only", action="append", default=[], metavar="NAME", help="this figure or peer only"
    )
    parser.add_argument("--peers", metavar="NAMES", help="none, or names with commas; default all")
    parser.add_argument("--quick", action="store_true", help="small samples: does it work, not how fast")
    parser.add_argument("--no-install", action="store_true", help="install nothing; use what is there")
    parser.add_argument("--work", type=Path, metavar="DIR", help="on the disk to measure; default /var/tmp")
    parser.add_argument("--out", type=Path, metavar="DIR", help="where the results go; default bench/results")
    return parser.parse_args(argv)


def _chosen(only: list[str], peer_words: str | None) -> tuple[list[str], list[str]]:
    """(figures, peers) in their order.  Leaves with an error for a name that there is not."""
    wanted_peers = list(peers.NAMES) if peer_words in (None, "all") else []
    if peer_words not in (None, "all", "none"):
        wanted_peers = str(peer_words).split(",")
    unknown = [name for name in (*only, *wanted_peers) if name not in (*figures.NAMES, *peers.NAMES)]
    if unknown:
        raise SystemExit(f"no such figure or peer: {', '.join(unknown)} (see --list)")
    if not only:
        return list(figures.NAMES), wanted_peers
    asked = [name for name in peers.NAMES if name in only]
    if peer_words is not None:
        asked += [name for name in wanted_peers if name not in asked]
    return [name for name in figures.NAMES if name in only], asked


def _default_work() -> Path:
    """/var/tmp, which outlives a reboot and so is on a disk; /tmp is memory on many systems."""
    place = Path("/var/tmp")
    return place if os.access(place, os.W_OK) else Path(tempfile.gettempdir())


if __name__ == "__main__":
    sys.exit(main())
