"""Where no worker can be started, the run says why; nothing of it ran, and it may be sent again."""

from __future__ import annotations

import errno
import sys
from pathlib import Path

import pytest

from durable_supervisor import Command, ErrorCode, RunState, Supervisor, SupervisorError, run
from tests.support import PATIENCE


@pytest.mark.parametrize("queued", [False, True])
async def test_an_interpreter_that_is_gone(
    state_dir: Path, monkeypatch: pytest.MonkeyPatch, queued: bool
) -> None:
    """An upgrade of Python may take it from under a host that goes on."""
    async with Supervisor.open(state_dir, zygote=False, max_concurrent_runs=1) as sup:
        before = await sup.start(Command(argv=["sleep", "3131"])) if queued else None
        with monkeypatch.context() as patched:
            patched.setattr(sys, "executable", "/nonexistent/python")
            asked = Command(argv=["sh", "-c", "exit 3"])
            refused = await sup.start(asked, request_id="one", queue=queued)
            seen = await sup.inspect(refused.id)
            assert (seen.state, seen.reason, seen.retryable) == (RunState.NOT_STARTED, "no_worker", True)
            assert seen.evidence is not None
            failure = {
                "errno": errno.ENOENT,
                "error": "ENOENT",
                "step": "worker",
                "path": "/nonexistent/python",
            }
            assert seen.evidence["exec_failed"] == failure
            assert [event.kind for event in (await sup.events(refused.id)).events] == [
                "program.exec_failed",
                "run.not_started",
            ]
            if before is None:
                with pytest.raises(SupervisorError) as caught:
                    await run(Command(argv=["true"]), supervisor=sup)
                assert caught.value.code is ErrorCode.NOT_STARTED
                assert "/nonexistent/python" in caught.value.message
        if before is not None:
            await sup.stop(before.id, grace=0)
        again = await sup.start(asked, request_id="one")
        assert (again.id, again.attempt) == (refused.id, 2)
        ended = await sup.wait(again.id, timeout=PATIENCE)
        assert ended.outcome is not None
        assert ended.outcome.code == 3
