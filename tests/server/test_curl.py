"""docs/http.md: the lines for curl, and the program for Node, work as they stand there."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from durable_supervisor.server.app import all_routes
from tests.server.hosted import hosted

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "http.md").read_text(encoding="utf-8")
LINES = [line for line in PAGE.splitlines() if line.startswith("curl ")]


def _curl_has_json() -> bool:
    curl = shutil.which("curl")
    if curl is None:
        return False
    version = subprocess.run([curl, "--version"], capture_output=True, text=True, check=True).stdout
    found = re.match(r"curl (\d+)\.(\d+)", version)
    return found is not None and (int(found[1]), int(found[2])) >= (7, 82)


@pytest.mark.skipif(not _curl_has_json(), reason="needs curl 7.82 for --json")
def test_every_line_works(tmp_path: Path) -> None:
    assert len(LINES) >= 15
    with hosted(tmp_path) as path:
        env = {**os.environ, "SOCKET": path, "RUN": "", "SECOND": ""}
        answers: list[str] = []
        for line in LINES:
            done = subprocess.run(
                ["sh", "-c", line.replace("curl ", "curl -sS --fail-with-body ", 1)],
                env=env,
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
            assert done.returncode == 0, (line, done.stdout, done.stderr)
            answers.append(done.stdout)
            if "/v1/start" in line:
                env["RUN" if '"first"' in line else "SECOND"] = json.loads(done.stdout)["run_id"]
        followed = [answers[number] for number, line in enumerate(LINES) if "/follow" in line]
    assert '"text":"hello\\n"' in followed[0]
    assert "event: end" in followed[0]
    assert followed[1].startswith("id: 4\n")
    stopped: dict[str, Any] = json.loads(answers[-2])
    assert stopped["confirmed"]


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
def test_the_program_for_node_works(tmp_path: Path) -> None:
    found = re.search(r"```js\n(.*?)```", PAGE, flags=re.DOTALL)
    assert found is not None
    with hosted(tmp_path) as path:
        done = subprocess.run(
            ["node", "-e", found[1]],
            env={**os.environ, "SOCKET": path},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("1 run.dispatched")
    assert " end " in done.stdout
    assert "kind: 'cancelled'" in done.stdout


def test_the_page_names_every_path() -> None:
    for route in all_routes():
        path = route.path.replace("{run}", "RUN")
        assert path in PAGE or f"…/{route.verb}" in PAGE, path
