"""What the service tells Prometheus: figures of the whole directory, no owner's, no run's.

Every label has a bounded set of values.  What is open is counted in the journal at each
scrape, by indexes that hold nothing else.  Counters begin with this process, that of state
changes with its first scrape.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from ... import __version__
from ...journal.figures import read_figures
from ...model.states import RunState
from ...supervisor.supervisor import Supervisor

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"  # of generate_latest
_P: Final = "durable_supervisor_"
_FEED_PAGE: Final = 1000
_COUNTED: Final = (*(state.value for state in RunState if state.value not in ("finished", "not_started")),)
_START_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
_REQUEST_SECONDS: Final = (0.001, 0.005, 0.025, 0.1, 0.5, 1, 5, 30)


class Metrics:
    """The metrics of one server, in a registry of their own."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor
        self._registry = registry = CollectorRegistry()
        self._scraping = asyncio.Lock()
        self._feed_seen: int | None = None
        ProcessCollector(registry=registry)
        Gauge(f"{_P}build_info", "Always 1.", ["version"], registry=registry).labels(__version__).set(1)
        self._runs = Gauge(
            f"{_P}runs", "Runs that are not over, or whose end is unresolved.", ["state"], registry=registry
        )
        self._known = Gauge(f"{_P}runs_known", "Runs in the journal, of any state.", registry=registry)
        self._changes = Counter(
            f"{_P}run_changes", "Runs that have come into a state.", ["state"], registry=registry
        )
        for state in RunState:
            self._changes.labels(state.value)
        self._starts = Histogram(
            f"{_P}start_seconds",
            "Time from a start request to its answer, by what it was answered with.",
            ["admission"],
            buckets=_START_SECONDS,
            registry=registry,
        )
        self._requests = Histogram(
            f"{_P}request_seconds",
            "Requests answered; those that follow or wait take as long as they do.",
            ["route", "method", "status"],
            buckets=_REQUEST_SECONDS,
            registry=registry,
        )
        self._errors = Counter(f"{_P}errors", "Error answers, by code.", ["code"], registry=registry)
        self.connections = Gauge(f"{_P}connections", "Open connections.", registry=registry)
        self.followers = Gauge(f"{_P}followers", "Open streams of events or of the feed.", registry=registry)
        registry.register(_Kept(supervisor))

    def request(self, route: str, method: str, status: int, seconds: float) -> None:
        """An answered request; ``route`` is its template, such as ``/v1/runs/{run}/inspect``."""
        self._requests.labels(route, method, str(status)).observe(seconds)

    def refused(self, code: str) -> None:
        """An error answer."""
        self._errors.labels(code).inc()

    def started(self, admission: str, seconds: float) -> None:
        """A start that was answered with a run: ``new``, ``existing`` or ``retry``."""
        self._starts.labels(admission).observe(seconds)

    async def render(self) -> bytes:
        """The text format (prometheus.io/docs/instrumenting/exposition_formats), as of now."""
        async with self._scraping:
            figures = await self._supervisor.journal.read(read_figures)
            for state in _COUNTED:
                self._runs.labels(state).set(figures.by_state.get(state, 0))
            self._known.set(figures.runs_ever)
            await self._count_changes(figures.feed_head)
            return generate_latest(self._registry)

    async def _count_changes(self, head: int) -> None:
        """Every entry of the feed since the first scrape, once."""
        if self._feed_seen is None:
            self._feed_seen = head
        while self._feed_seen < head:
            page = await self._supervisor.feed(after=self._feed_seen, limit=_FEED_PAGE)
            for entry in page:
                self._changes.labels(entry.state.value).inc()
            if not page:
                return
            self._feed_seen = page[-1].position


class _Kept(Collector):
    """What the supervisor counts itself."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor

    def collect(self) -> Iterator[Metric]:
        journal, capacity = self._supervisor.journal, self._supervisor.capacity()
        yield CounterMetricFamily(f"{_P}journal_commits", "Transactions committed.", value=journal.commits)
        yield CounterMetricFamily(
            f"{_P}journal_calls", "Calls that shared them.", value=journal.committed_calls
        )
        yield GaugeMetricFamily(f"{_P}slots_held", "Runs that hold a slot.", value=capacity.held)
        limits = {"slots": capacity.max_concurrent_runs, "owner_slots": capacity.max_runs_per_owner}
        limits["queue"] = capacity.max_queued_runs
        bounds = GaugeMetricFamily(
            f"{_P}limit", "The bounds of this service, where it has any.", labels=["of"]
        )
        for name, value in limits.items():
            if value is not None:
                bounds.add_metric([name], value)
        yield bounds
