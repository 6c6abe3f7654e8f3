"""Who is forked while a stop looks at the tree is told of it, too; who is forked to clean up is not."""

from __future__ import annotations

import pytest

from tests.process.gates import worker

SCRIPT = """
import subprocess
from durable_supervisor.process import tree
from durable_supervisor.worker.poller import Poller
from durable_supervisor.worker.stopping import Stopper

class Recorder:
    def record(self, kind, detail): pass
    def flush(self): pass

def looked(root):
    found = look(root)
    if len(started) == 1:  # the very moment that is meant
        started.append(subprocess.Popen(["sleep", "3131"]))
    return found

look, tree.descendants = tree.descendants, looked
first = subprocess.Popen([sys.executable, "-I", "-S", "-c", arguments[0]], stdout=subprocess.PIPE)
first.stdout.readline()
started = [first]
Stopper(Recorder(), Poller(), after_step=lambda: None, give_up=print).begin("stop", 60.0, over=False)
assert first.wait() == -15 or "signal" in arguments[0]
late = started[1]
if "signal" in arguments[0]:
    print(late.poll())
    late.kill()
print(late.wait())
"""


SLEEPS = "import time; print(flush=True); time.sleep(3131)"
HEEDS = f"import signal, sys; signal.signal(15, lambda *_: sys.exit()); {SLEEPS}"


@pytest.mark.parametrize(
    ("program", "late"),
    [(SLEEPS, ["-15"]), (HEEDS, ["None", "-9"])],
    ids=["nobody has a handler", "one has a handler"],
)
def test_forked_after_the_look(program: str, late: list[str]) -> None:
    assert worker(SCRIPT, "unknown", program).split() == late
