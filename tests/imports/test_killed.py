"""Kill -9 at every step of an import, and of its removal: there is all of it or nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from durable_supervisor import Supervisor
from durable_supervisor.upkeep.verify import verify
from tests.crash.harness import Host
from tests.imports.bundles import finished, imported
from tests.imports.conftest import Theirs
from tests.imports.test_upkeep import Kept
from tests.support import eventually_async

IMPORTS = ("import.copied", "import.checked", "import.synced", "import.renamed")
REMOVALS = ("gc.set_aside",)


@pytest.mark.parametrize("step", IMPORTS)
async def test_an_import_is_killed(state_dir: Path, theirs: Theirs, step: str) -> None:
    with Host(state_dir, f"{step}=kill") as host:
        host.opened()
        host.tell("import_", bundle=str(theirs.bundle))
        host.died()
    assert (await verify(state_dir)).findings == []
    there = step == "import.renamed"
    async with Supervisor.open(state_dir) as sup:
        assert [view.id for view in (await sup.list()).runs] == ([theirs.view.id] if there else [])

        async def is_cleared() -> bool:
            return bool(imported(state_dir)) == there

        await eventually_async(is_cleared)
        report = await sup.import_(theirs.bundle)
        assert report.admission == ("already" if there else "imported")
        assert (await sup.events(theirs.view.id)).end
        mine = await finished(sup)
        assert len({view.serial for view in (await sup.list()).runs}) == 2
        assert mine.id != theirs.view.id
    assert (await verify(state_dir)).findings == []


@pytest.mark.parametrize("step", REMOVALS)
async def test_its_removal_is_killed(state_dir: Path, theirs: Theirs, step: str) -> None:
    async with Supervisor.open(state_dir) as sup:
        own = await finished(sup, "own")
        await sup.import_(theirs.bundle)
    Kept(state_dir, own.id, theirs.view.id).age()
    with Host(state_dir, f"{step}=kill") as host:
        host.opened()
        host.tell("gc")
        host.died()
    async with Supervisor.open(state_dir) as sup:
        assert [view.id for view in (await sup.list()).runs] == [own.id]

        async def is_cleared() -> bool:
            return imported(state_dir) == []

        await eventually_async(is_cleared)
    assert (await verify(state_dir)).findings == []
