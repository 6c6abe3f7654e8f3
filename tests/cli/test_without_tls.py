"""The command takes ``ssl`` away from asyncio (`app._go_without_tls`): nothing of any verb may miss it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from durable_supervisor.cli.verbs import VERBS
from tests.cli.helpers import environment

# Tells on descriptor 3 who asked for ssl, and whether there was one at the end.
SPY = """
import builtins, json, os, sys
asked, plain_import, plain_exit = [], builtins.__import__, os._exit

def spy(name, globals=None, locals=None, fromlist=(), level=0):
    if level == 0 and name.partition(".")[0] in ("ssl", "_ssl"):
        asked.append((globals or {}).get("__name__"))
    return plain_import(name, globals, locals, fromlist, level)

def tell(code):
    there = sys.modules.get("ssl") is not None
    os.write(3, json.dumps({"asked": asked, "there": there}).encode())
    plain_exit(code)

builtins.__import__, os._exit = spy, tell
from durable_supervisor.cli.main import main
sys.argv = ["dsup", *sys.argv[1:]]
main()
"""
LOAD_ALL = """
import importlib, pkgutil, sys
sys.modules["ssl"] = None
import durable_supervisor
for module in pkgutil.walk_packages(durable_supervisor.__path__, "durable_supervisor."):
    # `serve` alone has the server; the plugin is pytest's; what has a main runs as soon as it is imported.
    if not module.name.startswith(("durable_supervisor.server", "durable_supervisor.testing")):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
"""


def spied(state_dir: Path, words: list[str], code: int) -> str:
    """What the verb printed, and that it asked for no TLS of its own."""
    done = subprocess.Popen(
        ["/bin/sh", "-c", 'exec "$@" 3>"$0"', f"{state_dir}.told", sys.executable, "-c", SPY, *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(state_dir, DURABLE_SUPERVISOR_DEBUG="1"),
    )
    out, err = done.communicate(timeout=60)
    assert done.returncode == code, (words, err)
    told = json.loads(Path(f"{state_dir}.told").read_text())
    assert not told["there"], words
    # Of the standard library each does without, as where Python was built so.
    strangers = [name for name in told["asked"] if name.partition(".")[0] not in sys.stdlib_module_names]
    assert not strangers, words
    return out


def test_no_verb_misses_it(state_dir: Path, tmp_path: Path) -> None:
    seen: set[str] = set()

    def one(verb: str, *words: str, code: int = 0) -> str:
        seen.add(verb)
        return spied(state_dir, [verb, *words], code)

    run = json.loads(one("start", "--stdin", "open", "--json", "--", "cat"))["run_id"]
    one("signal", run, "CONT")
    one("write-stdin", run, "--eof")
    one("wait", run)
    one("run", "--", "true")
    for verb in ("inspect", "events", "logs", "attach", "replay", "stop"):
        one(verb, run)
    for verb in ("list", "feed", "reconcile", "recover", "verify", "doctor", "capabilities"):
        one(verb)
    one("gc", "--keep", "1")
    one("service", "print")
    one("resolve", run, "--accept", code=5)
    bundle, secrets = tmp_path / "run.zip", tmp_path / "secrets"
    secrets.write_text("nobody-prints-this\n")
    one("export", run, "-o", str(bundle))
    one("report", str(bundle), "-o", str(tmp_path / "run.html"))
    one("import", str(bundle))
    one("audit", run, "--secrets-file", str(secrets))
    one("backup", str(tmp_path / "copy"))
    assert seen | {"serve"} == set(VERBS), "serve has it: its HTTP server insists"


def test_nothing_that_a_verb_could_load_needs_it() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOAD_ALL], env=environment(), capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")
