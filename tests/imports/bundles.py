"""Bundles of real runs, and what somebody may have made of them."""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from durable_supervisor import Command, Supervisor
from durable_supervisor.bundle.export import Source, export
from durable_supervisor.model.view import RunView
from durable_supervisor.supervisor.reading.reading import Reading
from durable_supervisor.supervisor.state.state_dir import StateDir
from tests.bundle.test_archive import Members, bundle, manifest_of
from tests.support import PATIENCE

SCRIPT = "echo out; echo err >&2; exit 3"
Change = Callable[[Members], object]


async def finished(
    sup: Supervisor, request_id: str = "theirs", script: str = SCRIPT, **options: Any
) -> RunView:
    """A run that is over, and noted in the journal as such."""
    run = await sup.start(Command(argv=["sh", "-c", script]), request_id=request_id, **options)
    await sup.wait(run.id, timeout=PATIENCE)
    await sup.reconcile()
    return await sup.inspect(run.id)


def exported(state_dir: Path, run_id: str, file: Path) -> Path:
    """What `export` writes."""
    with closing(Reading(StateDir(str(state_dir)))) as reading, open(file, "wb") as out:
        row = reading.row(run_id)
        with reading.snapshot(row) as log:
            view = reading.inspect(run_id, live=True)
            source = Source(view, reading.history(row), reading.paths(row), log)
            export(source, out.write, report=False)
    return file


def remade(source: Path, file: Path, change: Change, **manifest: Any) -> Path:
    """The same with other members, and a manifest that lists what there is then."""
    with zipfile.ZipFile(source) as zipped:
        found = {name: zipped.read(name) for name in zipped.namelist()}
    form = json.loads(found.pop("manifest.json"))
    change(found)
    form.pop("members")
    return bundle(file, found, manifest_of(found, **{**form, **manifest}))


def saying(name: str, **changes: Any) -> Change:
    """Other words in a document; those with ``run__`` before them in its run."""

    def change(found: Members) -> None:
        form = json.loads(found[name])
        for key, value in changes.items():
            place, key = (form["run"], key[5:]) if key.startswith("run__") else (form, key)
            place[key] = value
        found[name] = json.dumps(form).encode()

    return change


def together(*changes: Change) -> Change:
    """All of them, one after the other."""

    def change(found: Members) -> None:
        for one in changes:
            one(found)

    return change


def imported(state_dir: Path) -> list[str]:
    """All that lies where imported runs do, also while some of it goes."""
    folder = state_dir / "imported"
    walked = os.walk(folder)
    found = [Path(place, name) for place, folders, names in walked for name in (*folders, *names)]
    return sorted(str(path.relative_to(folder)) for path in found)
