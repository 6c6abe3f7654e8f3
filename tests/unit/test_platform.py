"""Where the guarantees cannot be kept, nothing is started."""

from __future__ import annotations

from pathlib import Path

import pytest

from durable_supervisor.journal import connection
from durable_supervisor.model.errors import ErrorCode, SupervisorError


async def test_a_sqlite_that_is_too_old_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "OLDEST_SQLITE", (99, 0, 0))
    with pytest.raises(SupervisorError) as caught:
        await connection.Journal.open(tmp_path / "state" / "journal.db")
    assert caught.value.code is ErrorCode.UNSUPPORTED_PLATFORM
    assert caught.value.hint
    assert not (tmp_path / "state").exists()
