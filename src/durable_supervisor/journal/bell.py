"""Wakes everybody who waits for the next change."""

from __future__ import annotations

import asyncio


class Bell:
    """Take `next`, look, and wait for it: what rings in between is not missed."""

    def __init__(self) -> None:
        self.next = asyncio.Event()

    def ring(self) -> None:
        """Wake all who wait; who comes later waits for the next ring."""
        self.next.set()
        self.next = asyncio.Event()
