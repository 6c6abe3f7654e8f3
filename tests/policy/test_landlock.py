"""Rulesets cut to each ABI: an older kernel than this one takes just these, so this one must too."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from durable_supervisor.sandbox.files import landlock

SOURCE = Path(__file__).parents[2] / "src"

CODE = """
import os, signal, sys
sys.path.insert(0, sys.argv[1])
from durable_supervisor.sandbox import privileges
from durable_supervisor.sandbox.files import landlock, paths
folder, abi, scoped_only, outsider = sys.argv[2], int(sys.argv[3]), sys.argv[4] == "scope", int(sys.argv[5])
landlock.probe = lambda: abi
privileges.gain_none()
granted = [paths.Open(folder, "read", os.open(folder, os.O_PATH)), *paths.open_base(terminal=False)]
landlock.restrict(None if scoped_only else granted)

def attempt(name, action):
    try:
        action()
        print(name, end=" ")
    except OSError:
        pass

attempt("read", lambda: open(folder + "/file").close())
attempt("write", lambda: open(folder + "/file", "a").close())
attempt("truncate", lambda: os.truncate(folder + "/file", 0))
attempt("list_root", lambda: os.listdir("/"))
attempt("move", lambda: os.rename(folder + "/file", folder + "/sub/file"))
attempt("trace", lambda: os.readlink(f"/proc/{outsider}/cwd"))
attempt("signal", lambda: os.kill(outsider, 0))
"""


def allowed(folder: Path, abi: int, kind: str) -> set[str]:
    """What a program can do under a ruleset for this ABI."""
    (folder / "sub").mkdir(exist_ok=True)
    (folder / "file").write_text("text")
    code = [sys.executable, "-I", "-S", "-c", CODE, str(SOURCE), str(folder), str(abi), kind]
    done = subprocess.run([*code, str(os.getpid())], capture_output=True, text=True, check=True, timeout=30)
    return set(done.stdout.split())


@pytest.mark.parametrize("abi", range(1, 8))
def test_what_each_abi_holds(tmp_path: Path, abi: int) -> None:
    if landlock.probe() < abi:
        pytest.skip(f"the kernel's Landlock has no ABI {abi}")
    files = {"read"} | ({"truncate"} if abi < landlock.TRUNCATE_SINCE else set())
    signals = {"signal"} if abi < landlock.SCOPES_SINCE else set()
    assert allowed(tmp_path, abi, "files") == files | signals
    # In a domain for its own sake all files are as ever; but before ABI 2 nothing can allow to move them.
    unheld = {"read", "write", "truncate", "list_root"} | ({"move"} if abi >= landlock.MOVE_SINCE else set())
    assert allowed(tmp_path, abi, "scope") == unheld | signals
