"""The table of statuses, and errors of our own."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from aiohttp import web

from durable_supervisor.model.errors import ErrorCode, Phase, SupervisorError
from durable_supervisor.server.app import all_routes, typed_errors
from durable_supervisor.server.requests.errors import RETRY_AFTER, STATUS, error_answer, internal, to_json
from durable_supervisor.wire.documents import validate
from tests.server.http import Http


def test_every_code_has_a_status_that_says_an_error() -> None:
    assert set(STATUS) == set(ErrorCode)
    assert all(400 <= status < 600 for status in STATUS.values())


@pytest.mark.parametrize("code", list(ErrorCode))
def test_every_code_is_a_document(code: ErrorCode) -> None:
    error = SupervisorError(code, "what is wrong", phase=Phase.RUN, details={"path": "\udcff"})
    answer = error_answer(error)
    assert answer.status == STATUS[code]
    assert ("Retry-After" in answer.headers) == (code in RETRY_AFTER)
    validate("error", {"error": error.to_dict()})
    assert isinstance(answer.body, bytes)
    answer.body.decode("ascii")


def test_what_can_be_tried_again_says_when() -> None:
    assert {ErrorCode.CAPACITY_EXHAUSTED, ErrorCode.BUSY, ErrorCode.SHUTTING_DOWN} == RETRY_AFTER


def test_json_has_no_nan() -> None:
    with pytest.raises(ValueError, match="JSON"):
        to_json({"x": float("nan")})


async def test_a_bug_tells_the_log_and_nobody_else(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    async def buggy(_: web.Request) -> web.StreamResponse:
        raise KeyError("the secret of another caller")

    app = web.Application(middlewares=[typed_errors])
    app.router.add_get("/buggy", buggy)
    runner = web.AppRunner(app)
    await runner.setup()
    with caplog.at_level(logging.ERROR, logger="durable_supervisor"):
        await web.UnixSite(runner, str(tmp_path / "s")).start()
        answer = await Http(tmp_path / "s").get("/buggy")
    await runner.cleanup()
    assert (answer.status, answer.code) == (500, "INTERNAL")
    assert b"secret" not in answer.body
    assert "request_failed" in caplog.text


def test_internal_says_that_runs_go_on() -> None:
    assert "runs are not affected" in internal().hint


def test_each_route_tells_each_code_once_by_status() -> None:
    for route in all_routes():
        assert len(set(route.failures)) == len(route.failures), route.path
