"""The worker starts light: one fresh interpreter a run, so every import counts."""

from __future__ import annotations

import pkgutil
import subprocess
import sys
from pathlib import Path

import durable_supervisor.worker

SOURCE = Path(durable_supervisor.worker.__file__).parents[2]
HEAVY = {
    "asyncio", "contextlib", "dataclasses", "inspect", "logging", "platformdirs", "psutil",
    "pydantic", "rich", "shutil", "sqlite3", "structlog", "subprocess", "tempfile", "threading", "typer",
    "typing",
}  # fmt: skip
ALLOWED = {"model", "process", "runlog", "worker"}
FOR_A_PLAN = {"durable_supervisor.worker.confining", "durable_supervisor.worker.resources"}

PROBE = """
import sys
sys.path.append(sys.argv[1])
for name in sys.argv[2:]:
    __import__(name)
print("\\n".join(sys.modules))
"""


def loaded_by(*modules: str) -> set[str]:
    """The modules of a fresh ``python -I -S`` after importing these."""
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", PROBE, str(SOURCE), *modules],
        capture_output=True,
        text=True,
        check=True,
    )
    return set(done.stdout.split())


def worker_modules() -> list[str]:
    package = durable_supervisor.worker
    names = [info.name for info in pkgutil.iter_modules(package.__path__, package.__name__ + ".")]
    return sorted(name for name in names if not name.endswith("__main__"))


def test_there_is_a_worker_to_look_at() -> None:
    assert "durable_supervisor.worker.main" in worker_modules()


def test_the_worker_loads_nothing_heavy() -> None:
    assert loaded_by(*worker_modules()) & HEAVY == set()


def layers_of(*modules: str) -> set[str]:
    return {name.split(".")[1] for name in loaded_by(*modules) if name.startswith("durable_supervisor.")}


def test_the_worker_stays_within_its_layers() -> None:
    """A run without a plan never loads what confines programs."""
    assert layers_of(*(name for name in worker_modules() if name not in FOR_A_PLAN)) <= ALLOWED


def test_the_worker_raises_none_of_the_errors_that_callers_get() -> None:
    """Their codes are enums, which take memory in each of many idle workers."""
    assert "durable_supervisor.model.errors" not in loaded_by(*worker_modules())


def test_what_carries_out_a_plan_reaches_the_sandbox_and_nothing_else() -> None:
    assert layers_of(*worker_modules()) <= ALLOWED | {"sandbox"}


def test_the_worker_starts_by_its_own_name() -> None:
    """``python -I -S worker/__main__.py`` finds its package with neither site nor PYTHONPATH."""
    done = subprocess.run(
        [sys.executable, "-I", "-S", str(SOURCE / "durable_supervisor" / "worker" / "__main__.py")],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert "ImportError" not in done.stderr
    assert "ModuleNotFoundError" not in done.stderr


def test_importing_the_package_loads_no_layer() -> None:
    assert not {name for name in loaded_by("durable_supervisor") if name.startswith("durable_supervisor.")}
    assert loaded_by("durable_supervisor") & HEAVY == set()
