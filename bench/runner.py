"""One sitting: every chosen figure and peer, one after the other, on one file system."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from . import figures, machine, orphans, peers
from .child import REPOSITORY
from .model import Context, NotMeasured, PeerResult, Row
from .report import Report, verdict
from .targets import TARGETS


def run(ctx: Context, figure_names: Sequence[str], peer_names: Sequence[str]) -> Report:
    """Measure and report.  A figure or peer that fails is reported as not measured, with the error."""
    orphans.adopt()
    report = Report(machine=machine.facts(ctx.work), quick=ctx.quick, hidden=_hidden(ctx))
    report.load_before = machine.load()
    for name in figure_names:
        begin = time.perf_counter()
        for row in _measure(ctx, name):
            report.rows.append(row)
            value = "-" if row.value is None else f"{row.value:.4g}"
            say(f"{row.key}: {value} {TARGETS[row.key].unit} ({verdict(row)}) {row.why_not}")
        report.seconds[name] = _tidy(name, begin)
    for name in peer_names:
        begin = time.perf_counter()
        peer = _measure_peer(ctx, name)
        report.peers.append(peer)
        say(f"{peer.name}: {peer.skipped or dict(peer.figures)}")
        report.seconds[f"peer {name}"] = _tidy(name, begin)
    report.load_after = machine.load()
    return report


def say(text: str) -> None:
    sys.stderr.write(text.rstrip() + "\n")


def _measure(ctx: Context, name: str) -> list[Row]:
    figure = figures.load(name)
    say(f"-- {figure.TITLE}")
    try:
        return asyncio.run(figure.measure(ctx))
    except NotMeasured as reason:
        why = str(reason)
    except Exception as error:  # noqa: BLE001  the other figures go on; the report says what happened
        why = f"{type(error).__name__}: {error}"
    return [Row(key=key, value=None, why_not=why) for key in figure.ROWS]


def _measure_peer(ctx: Context, name: str) -> PeerResult:
    say(f"-- peer {name}")
    try:
        return peers.measure(ctx, name)
    except NotMeasured as reason:
        why = str(reason)
    except Exception as error:  # noqa: BLE001  as above
        why = f"{type(error).__name__}: {error}"
    return PeerResult(name=name, skipped=why)


def _tidy(name: str, begin: float) -> float:
    seconds = round(time.perf_counter() - begin, 1)
    for command in orphans.end_all():
        say(f"{name} left a process behind, which was ended: {command}")
    return seconds


def _hidden(ctx: Context) -> dict[str, str]:
    """What error messages may carry of this machine."""
    words = {
        str(ctx.work): "WORK",
        str(REPOSITORY): "REPOSITORY",
        str(Path.home()): "HOME",
        os.path.realpath(ctx.work): "WORK",
        socket.gethostname(): "HOST",
    }
    return {text: word for text, word in words.items() if len(text) > 3}
