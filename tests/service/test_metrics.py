"""What Prometheus reads, over the real socket."""

from __future__ import annotations

import os

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.service.conftest import Serve
from tests.service.daemons import Service, ask

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def scrape(service: Service) -> Samples:
    status, text = service.ask("GET", "/metrics")
    assert status == 200
    return {
        (sample.name.removeprefix("durable_supervisor_"), tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def of(samples: Samples, name: str, **labels: str) -> float:
    return samples[name, tuple(sorted(labels.items()))]


def test_the_figures(serve: Serve) -> None:
    service = serve("--max-concurrent-runs", "2", "--max-queued-runs", "5")
    first = scrape(service)
    assert of(first, "runs", state="running") == 0
    assert (of(first, "limit", of="slots"), of(first, "limit", of="queue")) == (2, 5)
    assert ("limit", (("of", "owner_slots"),)) not in first

    ended = service.start("sh", "-c", "exit 1", request_id="one")
    assert service.ask("GET", f"/v1/runs/{ended}/wait?timeout=60")[0] == 200
    service.start("sh", "-c", "exit 1", request_id="one")
    service.ask("POST", "/v1/start", {"command": {"argv": ["true"]}, "request_id": "one"})
    running = [service.start("sleep", "100") for _ in range(2)]
    assert service.ask("POST", "/v1/start", {"command": {"argv": ["true"]}})[0] == 429
    assert service.ask("POST", "/v1/start", {"command": {"argv": ["true"]}, "queue": True})[0] == 201
    service.ask("GET", f"/v1/runs/{'0' * 16}/inspect")
    service.ask("GET", "/v1/../../secret-path")

    now = scrape(service)
    assert of(now, "start_seconds_count", admission="new") == 4
    assert of(now, "start_seconds_count", admission="existing") == 1
    assert of(now, "errors_total", code="IDEMPOTENCY_CONFLICT") == 1
    assert of(now, "errors_total", code="CAPACITY_EXHAUSTED") == 1
    assert of(now, "errors_total", code="UNKNOWN_RUN") == 1
    assert of(now, "request_seconds_count", method="GET", route="/v1/runs/{run}/inspect", status="404") == 1
    assert (of(now, "slots_held"), of(now, "runs", state="queued")) == (2, 1)
    assert of(now, "runs_known") == 4
    assert of(now, "run_changes_total", state="finished") == 1
    assert of(now, "journal_calls_total") >= of(now, "journal_commits_total") > 0
    assert of(now, "connections") == 1
    assert of(now, "build_info", version=service.facts["version"]) == 1
    assert of(now, "process_resident_memory_bytes") > 0
    text = str(now)
    assert not [word for word in ("secret-path", "0" * 16, ended, *running) if word in text]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be somebody else")
def test_they_are_the_operators_alone(serve: Serve) -> None:
    me = f"{os.geteuid()}:someone:theirs:default"
    service = serve("--caller", me)
    status, form = ask(service.socket, "GET", "/metrics")
    assert (status, form["error"]["code"]) == (403, "PEER_DENIED")
