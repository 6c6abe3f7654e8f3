"""Fixtures of the attach tests."""

from __future__ import annotations

from tests.cli.conftest import cli, terminal
from tests.contract.conftest import runs

__all__ = ["cli", "runs", "terminal"]
