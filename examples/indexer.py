"""The demo's long-running program: hash a real source tree, one file after the other.

It knows nothing about durable_supervisor.  Any program would do.
"""

from __future__ import annotations

import hashlib
import sys
import sysconfig
import time
from pathlib import Path


def main(count: int, pause: float) -> None:
    root = Path(sysconfig.get_paths()["stdlib"])
    files = sorted(path for path in root.rglob("*.py") if "site-packages" not in path.parts)[:count]
    total = 0
    for number, path in enumerate(files, start=1):
        content = path.read_bytes()
        total += len(content)
        digest = hashlib.sha256(content).hexdigest()[:12]
        print(f"{number:3}/{len(files)}  {digest}  {path.relative_to(root)}", flush=True)
        time.sleep(pause)  # real work takes time
    print(f"done: {len(files)} files, {total:,} bytes", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]))
