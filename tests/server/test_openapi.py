"""The description is current, complete, and holds against the real socket."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import requests
import schemathesis
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection
from urllib3.connectionpool import HTTPConnectionPool

from durable_supervisor.server.app import all_routes
from durable_supervisor.server.routes.openapi import describe, served
from tests.server.hosted import hosted
from tests.server.http import Http
from tests.support import PATIENCE

ROOT = Path(__file__).resolve().parents[2]
# More of them: DURABLE_SUPERVISOR_API_EXAMPLES=500 make test TESTS=tests/server/test_openapi.py
EXAMPLES = int(os.environ.get("DURABLE_SUPERVISOR_API_EXAMPLES", "12"))


def test_the_checked_in_description_is_current() -> None:
    assert (ROOT / "docs" / "openapi.json").read_bytes() == served(), "make openapi"


def test_every_route_is_in_it() -> None:
    form = describe(all_routes())
    told = {(method.upper(), path) for path, item in form["paths"].items() for method in item}
    assert told == {(route.method, route.path) for route in all_routes()}
    for item in form["paths"].values():
        for operation in item.values():
            assert operation["summary"]
            assert {"400", "403", "500", "503"} <= set(operation["responses"])


def test_names_of_operations_are_unique() -> None:
    form = describe(all_routes())
    names = [operation["operationId"] for item in form["paths"].values() for operation in item.values()]
    assert len(set(names)) == len(names)


async def test_it_is_served(http: Http) -> None:
    answer = await http.get("/v1/openapi.json")
    assert answer.headers["content-type"] == "application/json; charset=utf-8"
    assert answer.body == served()


class _UnixConnection(HTTPConnection):
    path = ""

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(PATIENCE)
        self.sock.connect(self.path)


class _UnixAdapter(HTTPAdapter):
    """requests over a Unix socket."""

    def __init__(self, path: str) -> None:
        super().__init__()
        connection = type("Connection", (_UnixConnection,), {"path": path})
        pool = type("Pool", (HTTPConnectionPool,), {"ConnectionCls": connection})
        self._pool = pool("localhost", maxsize=1)

    def get_connection_with_tls_context(self, *_: Any, **__: Any) -> Any:
        return self._pool

    def close(self) -> None:
        self._pool.close()
        super().close()


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[requests.Session]:
    folder = tmp_path_factory.mktemp("api")
    (folder / "bin").mkdir()
    # Made-up commands must not be somebody's real ones.
    with hosted(folder, PATH=str(folder / "bin")) as path, requests.Session() as made:
        made.trust_env = False
        made.mount("http://", _UnixAdapter(path))
        yield made


# Streams end only with their run, and have tests of their own.
schema = schemathesis.openapi.from_dict(json.loads(served())).exclude(path_regex="follow$|attach$")
schema.config.generation.update(modes=list(schemathesis.GenerationMode))


@schema.parametrize()
@hypothesis.settings(max_examples=EXAMPLES, derandomize=EXAMPLES == 12, database=None)
def test_any_request_gets_a_documented_answer(
    case: schemathesis.Case[Any], session: requests.Session
) -> None:
    """Right or wrong, valid or not: a documented status, its document, and never an error of ours."""
    response = case.call(base_url="http://localhost", session=session, timeout=PATIENCE)
    case.validate_response(
        response,
        # The grammar of ids, names and values is the model's, and finer than JSON Schema can say.
        excluded_checks=[schemathesis.checks.positive_data_acceptance],
    )
