"""Entry of a worker started by exec: ``python -I -S -X utf8 __main__.py RUN_ID [CAUSE]``.

``-I -S`` keeps the host's environment and site-packages out and the start fast;
so the package's own folder is appended to the path here.  Descriptors: 3 is the
channel to the supervisor, 4 the locked run log.  The run id is an argument only
so that people can tell workers apart in ps.

``__main__.py --prestarted``: it has no run yet, and gets those two over the socket 3.
"""

from __future__ import annotations

import os
import sys

PRESTARTED = "--prestarted"


def _source_root() -> str:
    return os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


if __name__ == "__main__":
    import gc

    gc.disable()  # loading makes much, and none of it is garbage: looking for it takes a tenth of the time
    sys.path.append(_source_root())
    from durable_supervisor.worker.main import work

    gc.freeze()
    gc.enable()

    if sys.argv[1:] == [PRESTARTED]:
        from durable_supervisor.worker.zygote import await_run

        await_run()
        work(hardened=True)
    work(sys.argv[2] if len(sys.argv) > 2 else None)
