"""Baseline: COUNT times PROGRAM by posix_spawn, AT_ONCE of them always under way.  Prints JSON."""

import json
import os
import sys
import time


def main(program: str, count: int, at_once: int) -> None:
    begin = time.perf_counter()
    started = ended = 0
    while ended < count:
        while started < count and started - ended < at_once:
            os.posix_spawn(program, [program], {})
            started += 1
        os.wait()
        ended += 1
    sys.stdout.write(json.dumps({"runs_per_s": count / (time.perf_counter() - begin)}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
