"""The table of statuses, and errors of our own."""

from __future__ import annotations

import logging

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from durable_supervisor.model.errors import ErrorCode, Phase, SupervisorError
from durable_supervisor.server.app import all_routes, typed_errors
from durable_supervisor.server.errors import RETRY_AFTER, STATUS, error_answer, internal, to_json
from durable_supervisor.server.observing import Handler
from durable_supervisor.wire.documents import validate


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


async def test_a_bug_tells_the_log_and_nobody_else(caplog: pytest.LogCaptureFixture) -> None:
    async def buggy(_: web.Request) -> web.StreamResponse:
        raise KeyError("the secret of another caller")

    handler: Handler = buggy
    with caplog.at_level(logging.ERROR, logger="durable_supervisor"):
        answer = await typed_errors(make_mocked_request("GET", "/v1/info"), handler)
    assert isinstance(answer, web.Response)
    assert isinstance(answer.body, bytes)
    assert answer.status == 500
    assert b"INTERNAL" in answer.body
    assert b"secret" not in answer.body
    assert "request_failed" in caplog.text


def test_internal_says_that_runs_go_on() -> None:
    assert "runs are not affected" in internal().hint


def test_each_route_tells_each_code_once_by_status() -> None:
    for route in all_routes():
        assert len(set(route.failures)) == len(route.failures), route.path
