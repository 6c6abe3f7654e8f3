"""Fixtures of the attach tests."""

from __future__ import annotations

from tests.contract.conftest import marker, runs

__all__ = ["marker", "runs"]
