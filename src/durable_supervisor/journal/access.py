"""What use cases ask of the owner's journal, in whichever thread it works."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Protocol, TypeVar

T = TypeVar("T")


class JournalAccess(Protocol):
    """Documented, and for event loops implemented, by `connection.Journal`; without one by `direct`."""

    async def write(
        self, work: Callable[[sqlite3.Connection], T], *, durable: bool = True, patient: bool = False
    ) -> T: ...

    async def read(self, work: Callable[[sqlite3.Connection], T]) -> T: ...

    async def close(self) -> None: ...
