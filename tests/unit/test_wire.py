"""The documents of ``--json``: their schemas are published, current and tight."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from durable_supervisor.model.command import Limits
from durable_supervisor.model.enforcement import unconfined
from durable_supervisor.model.errors import ErrorCode, Phase, SupervisorError
from durable_supervisor.model.events import ALL_KINDS, Event, Kind
from durable_supervisor.model.outcome import Outcome, OutcomeKind
from durable_supervisor.model.schema import VERSIONS, schema_name
from durable_supervisor.wire.base import LimitsForm, OutcomeForm
from durable_supervisor.wire.details import DETAILS
from durable_supervisor.wire.documents import SCHEMAS, json_schema, validate
from durable_supervisor.wire.schemas import main, rendered

PUBLISHED = Path(__file__).parents[2] / "docs" / "schemas"
VALIDATORS = {name: jsonschema.Draft202012Validator(json_schema(name)) for name in SCHEMAS}
WALL = 1_767_322_985_000_006_789
TIME = "2026-01-02T03:03:05.000006Z"
IDENTITY = {
    "pid": 42,
    "create_time": 1700000000.25,
    "start_ticks": 777,
    "boot_id": "boot-a",
    "pid_ns": "pid:[1]",
    "time_ns": "time:[1]",
}
RECEIPT: dict[str, Any] = {
    "attempt": 1,
    "outcome": {"kind": "exited", "code": 0, "signal": None},
    "exit": {"code": 0, "signal": None},
    "rusage": {"user_seconds": 0.1, "system_seconds": 0.0, "max_rss_kib": 9000},
    "started_at": TIME,
    "finished_at": TIME,
    "duration": 1.5,
    "output": {
        "stdout": {"bytes": 5, "dropped": 0, "complete": True},
        "stderr": {"bytes": 0, "dropped": 0, "complete": True},
    },
    "stdin_bytes": 0,
    "survivors": [IDENTITY],
    "stop": None,
    "incomplete": False,
    "cleanup_confirmed": False,
    "run_id": "k3v9c2m8q4tzabcd",
    "executable": {"requested": "ls", "canonical": "/usr/bin/ls"},
    "enforcement": unconfined(),
}
SAMPLES: dict[str, dict[str, Any]] = {
    Kind.OUTPUT_DROPPED: {"first_seq": 1, "reason": "limit", "stream": "stdout", "bytes": 9, "events": 2},
    Kind.RUN_QUEUED: {"attempt": 1, "identity": IDENTITY, "priority": -3},
    Kind.RUN_DISPATCHED: {"attempt": 1, "identity": IDENTITY, "argv": ["ls"], "cwd": "/"},
    Kind.RUN_STOPPING: {"reason": "stop", "grace": 10, "control_id": "ctl-1"},
    Kind.RUN_WARNING: {"reason": "no_subreaper"},
    Kind.RUN_LOG_REPAIRED: {
        "reason": "torn_tail",
        "segment": "x.log",
        "offset": 10,
        "skipped_bytes": 3,
        "generation": 2,
    },
    Kind.RUN_WORKER_CRASHED: {"text": "Traceback"},
    Kind.RUN_FINISHED: RECEIPT,
    Kind.RUN_NOT_STARTED: {"reason": "ENOENT", "errno": 2},
    Kind.RUN_UNKNOWN: {"reason": "worker_lost", "evidence": {"row": 13}},
    Kind.RUN_QUARANTINED: {"reason": "lock_leaked", "evidence": {"row": 4}},
    Kind.RUN_RESOLVED: {"action": "accept"},
    Kind.PROGRAM_SPAWNED: {"identity": IDENTITY, "requested": "ls", "canonical": "/usr/bin/ls"},
    Kind.PROGRAM_CONFINED: {"enforcement": unconfined()},
    Kind.PROGRAM_RELEASED: {},
    Kind.PROGRAM_EXEC_FAILED: {"errno": 2, "error": "ENOENT", "step": "resolve", "path": "nope"},
    Kind.PROGRAM_SIGNALLED: {"signal": 15, "name": "SIGTERM", "pids": [42], "step": "term"},
    Kind.PROGRAM_EXITED: {"code": None, "signal": 9},
    Kind.CONTROL_RECEIVED: {"id": "ctl-1", "op": "stop", "peer_pid": 1, "grace": 3},
    Kind.CONTROL_APPLIED: {"id": "ctl-1", "op": "stop", "result": "stopping"},
}


def event(kind: str, detail: dict[str, Any]) -> dict[str, object]:
    return Event(7, WALL, 1_500_000_400, kind, detail).to_dict()


def test_published_schemas_are_current() -> None:
    assert {path.name for path in PUBLISHED.iterdir()} == set(rendered())
    for name, content in rendered().items():
        assert (PUBLISHED / name).read_text(encoding="utf-8") == content, "run: make schemas"


def test_the_generator_writes_them_all(tmp_path: Path) -> None:
    assert main([str(tmp_path / "new")]) == 0
    assert {path.name for path in (tmp_path / "new").iterdir()} == set(rendered())


def test_the_generator_says_how_it_is_used(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "usage:" in capsys.readouterr().err


@pytest.mark.parametrize("name", sorted(SCHEMAS))
def test_schemas_are_valid_open_and_versioned(name: str) -> None:
    schema = json_schema(name)
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["$id"].endswith(f":{name}:{VERSIONS[name]}")
    assert '"additionalProperties": false' not in json.dumps(schema)
    field = SCHEMAS[name].model_fields.get("schema_")
    if field is not None:
        assert schema["properties"]["schema"]["const"] == schema_name(name)


def test_every_document_has_a_version() -> None:
    assert set(SCHEMAS) == set(VERSIONS)


def test_every_kind_of_event_has_its_detail() -> None:
    assert set(DETAILS) == ALL_KINDS - {Kind.OUTPUT} == set(SAMPLES)


@pytest.mark.parametrize("kind", sorted(SAMPLES))
def test_events_of_every_kind_are_documents(kind: str) -> None:
    validate("event", event(kind, SAMPLES[kind]))
    VALIDATORS["event"].validate(event(kind, SAMPLES[kind]))


@pytest.mark.parametrize("kind", sorted(SAMPLES))
def test_each_promised_field_of_a_detail_is_required(kind: str) -> None:
    for name, field in DETAILS[kind].model_fields.items():
        rest = {key: value for key, value in SAMPLES[kind].items() if key != name}
        if field.is_required():
            with pytest.raises(ValidationError):
                validate("event", event(kind, rest))
        else:
            validate("event", event(kind, rest))


@given(st.binary(max_size=40), st.sampled_from(["stdout", "stderr"]))
def test_any_output_is_a_document(data: bytes, stream: str) -> None:
    form = Event(1, WALL, 0, Kind.OUTPUT, {"stream": stream, "offset": 0}, data).to_dict()
    validate("event", form)
    VALIDATORS["event"].validate(form)


@pytest.mark.parametrize(
    "change",
    [
        {"seq": 0},
        {"time": "yesterday"},
        {"elapsed": -1},
        {"kind": "run.started"},
        {"extra": 1},
        {"detail": []},
    ],
)
def test_what_no_event_looks_like_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        validate("event", {**event(Kind.PROGRAM_RELEASED, {}), **change})


def test_receipts() -> None:
    validate("receipt", RECEIPT)
    VALIDATORS["receipt"].validate(RECEIPT)
    with pytest.raises(ValidationError):
        validate("receipt", {**RECEIPT, "outcome": {"kind": "won", "code": 0, "signal": None}})


@pytest.mark.parametrize("code", list(ErrorCode))
def test_errors_are_documents(code: ErrorCode) -> None:
    error = SupervisorError(code, "what", phase=Phase.OPEN, hint="do", details={"run_ids": ["a"], "errno": 2})
    validate("error", {"error": error.to_dict()})
    VALIDATORS["error"].validate({"error": error.to_dict()})


def test_forms_say_the_same_as_the_model() -> None:
    LimitsForm.model_validate_json(json.dumps(Limits(timeout=3).to_dict()))
    OutcomeForm.model_validate_json(json.dumps(Outcome(OutcomeKind.CANCELLED, signal=15).to_dict()))


def test_undecodable_arguments_are_no_reason_to_fail() -> None:
    detail = {**SAMPLES[Kind.RUN_DISPATCHED], "argv": ["cat", "\udcff"]}
    validate("event", event(Kind.RUN_DISPATCHED, detail))
