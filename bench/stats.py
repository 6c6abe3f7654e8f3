"""Medians and percentiles."""

from __future__ import annotations

import statistics
from collections.abc import Sequence


def median(samples: Sequence[float]) -> float:
    """Raises ValueError for no samples: a figure without any is reported as not measured."""
    if not samples:
        raise ValueError("no samples")
    return statistics.median(samples)


def p99(samples: Sequence[float]) -> float:
    """The nearest-rank 99th percentile: with fewer than 100 samples the largest."""
    if not samples:
        raise ValueError("no samples")
    ordered = sorted(samples)
    return ordered[min(len(ordered) - 1, -(-len(ordered) * 99 // 100) - 1)]


def ms(seconds: float) -> float:
    """Milliseconds, to a tenth of a microsecond."""
    return round(seconds * 1e3, 4)


def timing(samples: Sequence[float]) -> dict[str, float]:
    """``{"p50_ms", "p99_ms", "n"}`` of samples in seconds."""
    return {"p50_ms": ms(median(samples)), "p99_ms": ms(p99(samples)), "n": len(samples)}
