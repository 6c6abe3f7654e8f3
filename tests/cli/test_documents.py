"""What every verb prints with ``--json`` is what ``docs/schemas`` publishes, field by field."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from durable_supervisor.cli.verbs import VERBS
from tests.cli.helpers import Cli

PUBLISHED = Path(__file__).resolve().parents[2] / "docs" / "schemas"
# Their entries come one a line, without a name of their schema in each.
LINES = {"events": "event", "logs": "event", "attach": "event", "replay": "event", "feed": "feed"}


def check(name: str, form: dict[str, Any]) -> None:
    """Valid, and without a field that nobody is told of."""
    schema = json.loads((PUBLISHED / f"{name}.v1.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator(schema).validate(form)
    if name != "event":
        assert form.get("schema", f"durable-supervisor/{name}/1") == f"durable-supervisor/{name}/1"
        assert not form.keys() - schema["properties"].keys()


def test_the_documents_of_every_verb(cli: Cli, tmp_path: Path) -> None:
    said: set[str] = set()

    def one(schema: str, verb: str, *words: str, code: int = 0) -> dict[str, Any]:
        result = cli(verb, "--json", *words)
        assert result.code == code, result.stderr
        check(schema, result.document)
        said.add(verb)
        return result.document

    one("start-request", "start", "--dry-run", "--env", "A=1", "--label", "a=b", "--", "true")
    script = "printf '\\377'; cat; echo over >&2; exit 3"
    run_id = one("start", "start", "--stdin", "open", "--", "sh", "-c", script)["run_id"]
    one("inspect", "inspect", run_id)
    one("control", "signal", run_id, "CONT")
    one("write-stdin", "write-stdin", run_id, "--eof")
    one("inspect", "wait", run_id, code=3)
    one("inspect", "run", "--", "true")
    one("stop", "stop", run_id)
    one("list", "list")
    one("reconcile", "reconcile")
    one("recover", "recover")
    one("gc", "gc", "--keep", "1")
    one("doctor", "doctor")
    one("capabilities", "capabilities")
    one("service", "service", "print")
    secrets = tmp_path / "secrets"
    secrets.write_text("nobody-prints-this\n")
    one("export", "export", run_id, "-o", str(tmp_path / "run.zip"))
    one("import", "import", str(tmp_path / "run.zip"))
    one("audit", "audit", run_id, "--secrets-file", str(secrets))
    one("backup", "backup", str(tmp_path / "copy"))
    one("verify", "verify")
    one("report", "report", str(tmp_path / "run.zip"), "-o", str(tmp_path / "run.html"))
    for verb, schema in LINES.items():
        lines = cli.ok(verb, "--json", *([] if verb == "feed" else [run_id])).documents
        assert lines
        for line in lines:
            check(schema, line)
        said.add(verb)
    refused = cli("resolve", "--json", run_id, "--accept")  # when it may: see `test_unknown_then_resolved`
    assert refused.code == 5
    check("error", {"error": refused.error})
    assert said | {"resolve", "serve"} == set(VERBS), "serve: in the tests of the service"


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_takes_the_common_options(cli: Cli, verb: str) -> None:
    text = cli.ok(verb, "--help").stdout
    assert "--json" in text
    assert "--state-dir" in text
