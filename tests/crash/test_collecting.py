"""Kill -9 at every step of a collection: no id is free again, and no run is half of what it was."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from durable_supervisor import Command, ErrorCode, Limits, RunState, Supervisor, SupervisorError
from tests.crash.collecting import COLLECTIONS, REOPENINGS
from tests.crash.harness import NOISY, QUICK, Host, HostDied, Ledger, end_all
from tests.crash.world import gapless
from tests.gc.aging import age, files
from tests.support import eventually_async

BODIES = {"quick": QUICK, "loud": f"{NOISY}; {NOISY}", "brief": "true"}
STEPS = (*(f"{name}=kill" for name in COLLECTIONS), "gc.unlinking=kill@2", "gc.unlinking=kill@3")
LIMITS = Limits(max_stdout_bytes=1 << 20, max_stderr_bytes=1 << 20)


@dataclass
class Finished:
    """A directory in which every request was carried out, long ago."""

    state_dir: Path
    ledger: Ledger
    ids: dict[str, str]

    def command(self, request_id: str) -> Command:
        return Command(argv=self.ledger.program(request_id, BODIES[request_id]))

    def copy(self, state_dir: Path) -> Finished:
        shutil.copytree(self.state_dir, state_dir, symlinks=True, dirs_exist_ok=True)
        return Finished(state_dir, self.ledger, self.ids)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Finished]:
    folder = tmp_path_factory.mktemp("finished")
    made = Finished(folder / "state", Ledger(folder), {})
    made.state_dir.mkdir(mode=0o700)
    with Host(made.state_dir) as host:
        host.opened()
        for request_id in BODIES:
            argv = made.command(request_id).argv
            limits = {"max_stdout_bytes": 1 << 20, "max_stderr_bytes": 1 << 20}
            made.ids[request_id] = host.start(list(argv), request_id, limits=limits)
        for run_id in made.ids.values():
            host.ask("wait", run=run_id)
        host.ask("reconcile")
        host.leave()
    age(made.state_dir)
    yield made
    end_all(made.state_dir)


def killed(world: Finished, step: str) -> None:
    """A collection that dies at this step, given as a failpoint and what it does."""
    with Host(world.state_dir, step) as host:
        host.opened()
        host.tell("gc")
        host.died()


@pytest.mark.parametrize("lost", [False, True], ids=["journal kept", "journal lost"])
@pytest.mark.parametrize("step", STEPS)
async def test_a_collection_is_killed(finished: Finished, state_dir: Path, step: str, lost: bool) -> None:
    world = finished.copy(state_dir)
    killed(world, step)
    await check(world, lost=lost)


@pytest.mark.parametrize("step", REOPENINGS)
async def test_who_finishes_it_is_killed(finished: Finished, state_dir: Path, step: str) -> None:
    world = finished.copy(state_dir)
    killed(world, "gc.recorded=kill")
    with Host(world.state_dir, f"{step}=kill") as host:
        with pytest.raises(HostDied):
            host.opened()
        host.died()
    await check(world, lost=False)


async def check(world: Finished, *, lost: bool) -> None:
    if lost:
        for path in world.state_dir.glob("journal.db*"):
            path.unlink()
        report = await Supervisor.recover(world.state_dir)
        assert sorted(report["added"]) == sorted(world.ids.values())  # type: ignore[call-overload]
        assert report["conflicts"] == []
    async with Supervisor.open(world.state_dir) as sup:
        for request_id, run_id in world.ids.items():
            await as_it_was_or_collected(world, sup, request_id, run_id)
        await eventually_async(lambda: only_of_kept_runs(world, sup))
        # What is left can be collected as any other.
        if not lost:
            assert (await sup.gc(keep=0, apply=True)).left == 0
            assert files(world.state_dir) == []
            for request_id, run_id in world.ids.items():
                assert await as_it_was_or_collected(world, sup, request_id, run_id)


async def as_it_was_or_collected(world: Finished, sup: Supervisor, request_id: str, run_id: str) -> bool:
    """Nothing between; is it collected?"""
    again = await sup.start(world.command(request_id), request_id=request_id, limits=LIMITS)
    assert (again.id, again.admission, again.state) == (run_id, "existing", RunState.FINISHED)
    assert world.ledger.begun(request_id) == 1
    view = await sup.inspect(run_id)
    assert view.outcome is not None
    assert (view.outcome.kind.value, view.outcome.code, view.log_health) == ("exited", 5, None)
    if view.collected_ns is None:
        assert view.receipt is not None
        assert (await gapless(sup, run_id))[-1].kind == "run.finished"
        return False
    with pytest.raises(SupervisorError) as error:
        await sup.events(run_id)
    assert error.value.code is ErrorCode.RUN_COLLECTED
    return True


async def only_of_kept_runs(world: Finished, sup: Supervisor) -> bool:
    kept = {view.id for view in (await sup.list()).runs}
    return {Path(name).parts[1].partition(".")[0] for name in files(world.state_dir)} <= kept


async def test_the_power_fails_while_files_go(finished: Finished, tmp_path: Path) -> None:
    """Once the rows say so, any of the files may be gone or there again: none of them is judged."""
    source = finished.copy(tmp_path / "source")
    killed(source, "gc.collected=kill")
    there = files(source.state_dir)
    assert len(there) > 4
    images = [*([name] for name in there), *([other for other in there if other != name] for name in there)]
    for number, gone in enumerate(images[::2]):
        world = source.copy(tmp_path / f"image-{number}")
        for name in gone:
            (world.state_dir / "runs" / name).unlink()
        await check(world, lost=number % 2 == 1)
