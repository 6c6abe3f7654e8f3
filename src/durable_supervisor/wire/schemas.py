"""Writes the published JSON Schemas: ``python -m durable_supervisor.wire.schemas DIRECTORY``."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from ..model.schema import VERSIONS
from .documents import SCHEMAS, json_schema


def rendered() -> dict[str, str]:
    """File name -> content, for every document."""
    return {
        f"{name}.v{VERSIONS[name]}.json": json.dumps(json_schema(name), indent=2, ensure_ascii=False) + "\n"
        for name in sorted(SCHEMAS)
    }


def main(arguments: list[str]) -> int:
    """Write all schemas into the one directory given; returns the exit code."""
    if len(arguments) != 1:
        sys.stderr.write("usage: python -m durable_supervisor.wire.schemas DIRECTORY\n")
        return 2
    directory = Path(arguments[0])
    directory.mkdir(parents=True, exist_ok=True)
    for name, content in rendered().items():
        (directory / name).write_text(content, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
