"""The log, at its most talkative, says nothing that a caller gave."""

from __future__ import annotations

from tests.service.conftest import Serve
from tests.service.daemons import until

SECRETS = ("s3cret-of-env", "s3cret-in-argv", "s3cret-by-name", "s3cret-on-stdin", "s3cret-in-bad-json")


def test_nothing_a_caller_gave_is_logged(serve: Serve) -> None:
    service = serve("--log-level", "debug")
    env, argv, named, stdin, bad = SECRETS
    command = {
        "argv": ["sh", "-c", f"echo {argv} $PLAIN; cat; exit 1"],
        "env": {"PLAIN": env, "API_TOKEN": named},
        "secret_env": {"S": named},
        "stdin": {"text": stdin},
    }
    status, form = service.ask("POST", "/v1/start", {"command": command, "labels": {"l": env}})
    assert status == 201, form
    run = form["run_id"]
    assert service.ask("GET", f"/v1/runs/{run}/wait?timeout=60")[1]["outcome"]["code"] == 1
    for path, body in [
        ("/v1/start", {"command": {"argv": [bad], bad: 1}}),
        (f"/v1/runs/{bad}/stop", {}),
        (f"/{bad}", {}),
    ]:
        assert service.ask("POST", path, body)[0] >= 400
    service.ask("GET", f"/v1/runs/{run}/events?limit=100&kind={bad}")
    until(lambda: run in [entry["run_id"] for entry in service.entries("run_changed")], "its end is logged")
    assert service.end() == 0
    log = service.log()
    assert not [secret for secret in SECRETS if secret in log]
    assert {entry["route"] for entry in service.entries("request")} >= {"/v1/start", "unmatched"}
    for entry in service.entries():
        assert list(entry)[:3] == ["time", "level", "event"]
