"""The wheel, installed in a fresh environment, is whole: it migrates an empty directory."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

MIGRATE = """
import asyncio, pathlib, sys
import durable_supervisor
from durable_supervisor.journal.connection import Journal
from durable_supervisor.journal import migrate

async def main(path):
    async with await Journal.open(path) as journal:
        return await journal.read(migrate.schema_version)

print(durable_supervisor.__file__)
print(migrate.directory())
print(asyncio.run(main(sys.argv[1])))
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel built from this tree, with the build tools of this environment."""
    out = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", str(out), str(ROOT))
    return next(out.glob("*.whl"))


@pytest.fixture(scope="module")
def fresh(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The python of a new environment that holds the wheel.

    The package comes from the wheel alone.  Its dependencies are lent by this
    environment, so that no network is needed: a .pth line only adds their folder
    to the path, it does not activate what is installed there as editable.
    """
    place = tmp_path_factory.mktemp("fresh env")
    run(sys.executable, "-m", "venv", "--without-pip", str(place))
    python = place / "bin" / "python"
    run(
        sys.executable, "-m", "pip", "--python", str(python), "install", "--no-index", "--no-deps", str(wheel)
    )
    site = run(str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip()
    (Path(site) / "lent.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    return python


def run(*command: str, cwd: Path | None = None) -> str:
    done = subprocess.run(command, capture_output=True, text=True, cwd=cwd)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_wheel_migrates_an_empty_directory(fresh: Path, tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    lines = run(str(fresh), "-I", "-c", MIGRATE, str(state / "journal.db"), cwd=tmp_path).splitlines()
    package, migrations, version = lines
    environment = str(fresh.parent.parent)
    assert package.startswith(environment)
    assert migrations.startswith(environment)
    assert int(version) == len(list((ROOT / "migrations").glob("*.sql")))


def test_the_wheel_brings_its_commands(fresh: Path, tmp_path: Path) -> None:
    for name in PROJECT["scripts"]:
        assert "Usage" in run(str(fresh.parent / name), "--help", cwd=tmp_path)


def test_the_wheel_brings_its_pytest_plugin(fresh: Path, tmp_path: Path) -> None:
    """pytest itself finds it, by the entry point."""
    shown = run(str(fresh), "-m", "pytest", "--fixtures", "-q", str(tmp_path), cwd=tmp_path)
    assert "durable_state_dir -- " in shown
    assert "crash_injector -- " in shown


def test_the_wheel_carries_every_file(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    sources = {path.relative_to(ROOT / "src").as_posix() for path in (ROOT / "src").rglob("*.py")}
    migrations = {
        f"durable_supervisor/migrations/{path.name}" for path in (ROOT / "migrations").glob("*.sql")
    }
    report = {
        path.relative_to(ROOT / "src").as_posix()
        for path in (ROOT / "src" / "durable_supervisor" / "bundle" / "report").iterdir()
        if path.suffix in (".css", ".js")
    }
    assert report
    assert sources | migrations | report <= names
    assert {name for name in names if ".dist-info/" not in name} <= sources | migrations | report | {
        "durable_supervisor/py.typed"
    }
    assert any(name.endswith("licenses/LICENSE") for name in names)


def test_what_is_imported_is_declared() -> None:
    """Third parties of the core are dependencies; those of the others come with an extra."""
    extra_of = {"cli": "cli", "client": "client", "server": "daemon", "testing": "testing"}
    declared: dict[str | None, set[str]] = {None: {distribution(line) for line in PROJECT["dependencies"]}}
    for name, lines in PROJECT["optional-dependencies"].items():
        declared[name] = declared[None] | {distribution(line) for line in lines}
    # What 3.12 calls _sha2 is _sha256 before.
    ours = set(sys.stdlib_module_names) | {"_sha2", "_sha256", "durable_supervisor"}
    package = ROOT / "src" / "durable_supervisor"
    for path in package.rglob("*.py"):
        extra = extra_of.get(path.relative_to(package).parts[0])
        assert third_parties(path) - ours <= declared[extra], path


def third_parties(path: Path) -> set[str]:
    """The top-level names of all that a file imports absolutely."""
    imported: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            imported |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            imported.add(node.module.partition(".")[0])
    return imported


def test_pins_agree_with_the_declared_ranges() -> None:
    pins = (ROOT / "requirements-dev.txt").read_text(encoding="utf-8").splitlines()
    pinned = {distribution(line) for line in pins if "==" in line}
    extras = PROJECT["optional-dependencies"].values()
    declared = {
        distribution(line) for line in [*PROJECT["dependencies"], *(line for one in extras for line in one)]
    }
    assert declared <= pinned
    assert not [line for line in pins if "://" in line or "--hash" in line or "index" in line]


def distribution(requirement: str) -> str:
    match = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert match is not None
    return match[0].lower().replace("-", "_")
