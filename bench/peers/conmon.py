"""conmon, the monitor under podman and CRI-O, with a fake OCI runtime that only forks the program."""

from __future__ import annotations

import ctypes
import itertools
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from . import harness

_IN_CLOSE_WRITE, _IN_MOVED_TO = 0x08, 0x80


class Peer(harness.Peer):
    DURABLE = "exit, in an unsynced file"
    NOTE = "acked: conmon tells the program's pid; exit known: inotify on its exit file"
    _numbers = itertools.count()

    def version(self) -> str:
        done = subprocess.run(["conmon", "--version"], capture_output=True, text=True, check=False)
        return done.stdout.split("\n")[0].rpartition(" ")[2]

    def open(self, commands: Mapping[tuple[str, ...], int]) -> None:
        if "fake_runtime" not in self.tools:
            raise RuntimeError("the fake runtime could not be compiled (gcc is missing)")
        (self.directory / "s").mkdir()
        self._libc = ctypes.CDLL(None, use_errno=True)

    def start(self, argv: Sequence[str]) -> tuple[int, Path]:
        name = f"c{next(self._numbers)}"
        bundle = self.directory / name
        exits = bundle / "exit"
        exits.mkdir(parents=True)
        (bundle / "args").write_text("\n".join(argv) + "\n")
        watch = self._watch(exits)
        told, tell = os.pipe()
        os.set_inheritable(tell, True)
        command = [
            "conmon", "--cid", name, "--cuuid", name, "--name", name, "--runtime", self.tools["fake_runtime"],
            "--bundle", str(bundle), "--container-pidfile", str(bundle / "pid"), "--exit-dir", str(exits),
            "--log-path", f"k8s-file:{bundle / 'log'}", "--socket-dir-path", str(self.directory / "s"),
            "--no-new-keyring",
        ]  # fmt: skip
        env = {**os.environ, "_OCI_SYNCPIPE": str(tell)}
        subprocess.run(command, env=env, pass_fds=[tell], check=True)
        os.close(tell)
        if b"pid" not in os.read(told, 4096):
            raise RuntimeError("conmon did not tell a pid")
        os.close(told)
        return watch, exits / name

    def wait(self, job: tuple[int, Path]) -> int:
        watch, exit_file = job
        try:
            while not exit_file.exists():
                os.read(watch, 4096)
            return int(exit_file.read_text())
        finally:
            os.close(watch)

    def _watch(self, directory: Path) -> int:
        """inotify(7): the standard library has no binding."""
        fd = self._libc.inotify_init1(os.O_CLOEXEC)
        if (
            fd < 0
            or self._libc.inotify_add_watch(fd, os.fsencode(directory), _IN_CLOSE_WRITE | _IN_MOVED_TO) < 0
        ):
            raise OSError(ctypes.get_errno(), "inotify")
        return int(fd)
