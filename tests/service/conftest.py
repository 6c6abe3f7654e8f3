"""Services of a test, ended with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.service.daemons import Service

Serve = Callable[..., Service]


@pytest.fixture
def serve(state_dir: Path) -> Iterator[Serve]:
    """``serve(*options)``: one more service on the test's state directory, ready."""
    services: list[Service] = []

    def make(*options: str, **more: Any) -> Service:
        services.append(Service(state_dir, *options, **more))
        return services[-1].ready()

    yield make
    for service in services:
        service.kill()
