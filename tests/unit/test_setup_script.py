"""``tools/setup-venv.sh``: a clear word where it cannot work, no network where it need not."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "tools" / "setup-venv.sh"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder with a space in its name and the files that the script reads."""
    place = tmp_path / "a checkout"
    place.mkdir()
    for name in ("requirements-dev.txt", "pyproject.toml"):
        shutil.copy(ROOT / name, place / name)
    return place


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    """A PATH with the few commands that the script needs, and no python."""
    place = tmp_path / "bin"
    place.mkdir()
    for name in ("cat", "cksum", "id", "rm", "sh"):
        found = shutil.which(name)
        assert found is not None
        (place / name).symlink_to(found)
    return place


def executable(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)
    return path


def setup(checkout: Path, tools: Path, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sh", str(SCRIPT)],
        cwd=checkout,
        env={"PATH": str(tools), **env},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_without_python_it_says_what_to_install(checkout: Path, tools: Path) -> None:
    done = setup(checkout, tools)
    assert done.returncode == 1
    assert "apt-get install -y python3 python3-venv" in done.stderr
    assert "Python 3.11 or newer" in done.stderr


def test_an_old_python_is_passed_over(checkout: Path, tools: Path) -> None:
    executable(tools / "python3", "#!/bin/sh\nexit 1\n")
    assert "Python 3.11 or newer" in setup(checkout, tools).stderr


def test_without_the_venv_package_it_gives_the_exact_command(checkout: Path, tools: Path) -> None:
    version = "{}.{}".format(*sys.version_info[:2])
    pretend = f'#!/bin/sh\ncase "$2" in *ensurepip*) exit 1;; esac\nexec "{sys.executable}" "$@"\n'
    executable(tools / "python3", pretend)
    done = setup(checkout, tools)
    assert done.returncode == 1
    assert f"apt-get install -y python{version}-venv" in done.stderr
    assert ("sudo" in done.stderr) == (os.getuid() != 0)
    assert not (checkout / ".venv").exists()


def test_an_environment_that_is_up_to_date_is_left_alone(checkout: Path, tools: Path) -> None:
    executable(checkout / ".venv" / "bin" / "python", f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    files = ["cksum", "requirements-dev.txt", "pyproject.toml"]
    sums = subprocess.run(files, cwd=checkout, capture_output=True, text=True, check=True).stdout
    (checkout / ".venv" / ".ready").write_text(f"{sums}{checkout.resolve()}\n", encoding="utf-8")
    done = setup(checkout, tools)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_changed_pin_or_a_moved_folder_is_noticed(checkout: Path, tools: Path) -> None:
    (checkout / ".venv").mkdir()
    (checkout / ".venv" / ".ready").write_text("something else\n", encoding="utf-8")
    assert setup(checkout, tools).returncode == 1
