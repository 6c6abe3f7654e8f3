"""Baseline: run a program and copy its stdout from the pipe to a file, with the worker's syncs.

    python -I -S pipe_to_file.py OUT PROGRAM [ARGUMENT...]

Like a worker it syncs beside the copying, when 1 MiB is unsynced and no sync is under
way, and once at the end.  Prints ``{"seconds", "bytes"}``, from the spawn to the last sync.
"""

import _thread
import json
import os
import sys
import time

_CHUNK = 256 * 1024
_SYNC_BYTES = 1024 * 1024


def main(out: str, argv: list[str]) -> None:
    begin = time.perf_counter()
    read, write = os.pipe()
    child = os.posix_spawn(
        argv[0], argv, {}, file_actions=[(os.POSIX_SPAWN_DUP2, write, 1), (os.POSIX_SPAWN_CLOSE, read)]
    )
    os.close(write)
    fd = os.open(out, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    total = copy(read, fd)
    os.waitpid(child, 0)
    os.fdatasync(fd)
    sys.stdout.write(json.dumps({"seconds": time.perf_counter() - begin, "bytes": total}))


def copy(read: int, fd: int) -> int:
    total = unsynced = 0
    syncing = _thread.allocate_lock()

    def sync() -> None:
        os.fdatasync(fd)
        syncing.release()

    while data := os.read(read, _CHUNK):
        os.write(fd, data)
        total += len(data)
        unsynced += len(data)
        if unsynced >= _SYNC_BYTES and syncing.acquire(False):
            unsynced = 0
            _thread.start_new_thread(sync, ())
    syncing.acquire()
    return total


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
